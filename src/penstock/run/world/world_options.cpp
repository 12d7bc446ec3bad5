#include "penstock/run/world/world_options.h"

#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

// The variables in which one way of starting processes says who they are.
struct Starter {
  const char* rank;
  const char* size;
  const char* local_rank;
};

constexpr std::array kStarters = {
    Starter{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Starter{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Starter{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

struct Range {
  int lowest = 0;
  int highest = std::numeric_limits<int>::max();
};

int parse(const char* name, std::string_view text, Range range) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < range.lowest ||
      number > range.highest) {
    throw ArgumentError(
        fmt::format("the environment variable {} is {}; expected a number {}", name, quote(text),
                    range.highest == std::numeric_limits<int>::max()
                        ? fmt::format("of at least {}", range.lowest)
                        : fmt::format("from {} to {}", range.lowest, range.highest)));
  }
  return number;
}

const Starter& starter_of(const GetVariable& variable) {
  for (const Starter& starter : kStarters) {
    if (variable(starter.rank) != nullptr || variable(starter.size) != nullptr) return starter;
  }
  throw ArgumentError(
      "the environment does not say which rank this is; start the program with torchrun, mpirun or "
      "srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

const char* require(const GetVariable& variable, const char* name, const char* other) {
  const char* text = variable(name);
  if (text != nullptr) return text;
  throw ArgumentError(
      fmt::format("the environment variable {} is missing, although {} is set", name, other));
}

}  // namespace

WorldOptions world_options_from_environment(const GetVariable& variable) {
  constexpr int kHighestPort = 65535;
  const Starter& starter = starter_of(variable);
  WorldOptions options;
  options.size = parse(starter.size, require(variable, starter.size, starter.rank), {.lowest = 1});
  options.rank = parse(starter.rank, require(variable, starter.rank, starter.size),
                       {.lowest = 0, .highest = options.size - 1});
  if (const char* text = variable(starter.local_rank); text != nullptr) {
    options.local_rank = parse(starter.local_rank, text, {});
  }
  if (const char* text = variable("MASTER_ADDR"); text != nullptr) {
    options.master_address = text;
  } else if (options.size > 1) {
    throw ArgumentError(
        fmt::format("the environment variable MASTER_ADDR is missing; the {} ranks meet at the "
                    "address of rank 0, so set it to that on all of them",
                    options.size));
  }
  if (const char* text = variable("PENSTOCK_TOKEN"); text != nullptr) options.token = text;
  if (const char* text = variable("PENSTOCK_STORE"); text != nullptr) options.store_file = text;
  if (const char* text = variable("PENSTOCK_RESTARTS"); text != nullptr) {
    options.attempt = parse("PENSTOCK_RESTARTS", text, {});
  }
  if (const char* text = variable("MASTER_PORT"); text != nullptr) {
    options.master_port = parse("MASTER_PORT", text, {.lowest = 1, .highest = kHighestPort});
  }
  return options;
}

}  // namespace penstock
