#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "commands.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/launch/launcher.h"

namespace penstock {
namespace {

constexpr int kUsualPort = 29500;  // that of torchrun
constexpr int kLargestPort = 65535;
constexpr double kLongestGrace = 86'400;  // a day

struct LaunchFlags {
  LaunchOptions options;
  std::string hosts;
  int node_rank = -1;  // which host this is; -1: found by its name
  double grace_s = 5;
};

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The part of a host's name in front of the domain.
std::string_view short_name(std::string_view host) {
  return host.substr(0, host.find('.'));
}

int place_among(const std::vector<std::string>& hosts) {
  const std::string here = host_name();
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return host == here || short_name(host) == short_name(here);
  });
  if (found == hosts.end()) {
    throw ArgumentError(
        fmt::format("this host, {}, is not among --hosts {}; say which of them it is with "
                    "--node-rank",
                    quote(here), fmt::join(hosts, ",")));
  }
  return static_cast<int>(found - hosts.begin());
}

LaunchOptions resolve(LaunchFlags flags) {
  LaunchOptions& options = flags.options;
  options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * flags.grace_s));
  if (!flags.hosts.empty()) {
    const std::vector<std::string> hosts = split_list(flags.hosts);
    options.num_nodes = static_cast<int>(hosts.size());
    if (options.master_address.empty()) options.master_address = hosts.front();
    if (flags.node_rank < 0) flags.node_rank = place_among(hosts);
  }
  options.node_rank = std::max(0, flags.node_rank);
  if (options.num_nodes > 1) {
    if (flags.node_rank < 0) {
      throw ArgumentError("several hosts need --node-rank on each of them, counted from 0");
    }
    if (options.master_port == 0) options.master_port = kUsualPort;
    const char* const token = std::getenv("PENSTOCK_TOKEN");
    if (token != nullptr) options.token = token;
  }
  return options;
}

}  // namespace

void add_launch_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<LaunchFlags>();
  CLI::App* command =
      program.add_subcommand("launch", "Start the ranks of a pipeline as processes");
  command->footer(
      "Example:\n"
      "  penstock launch -n 2 -- printenv RANK\n"
      "\n"
      "Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT "
      "and PENSTOCK_TOKEN. Its output comes out line by line with its rank in front. When a rank "
      "fails, the others have --grace seconds to fail with errors of their own, then they are "
      "ended.\n"
      "On several hosts, run the same command on each of them, with the same PENSTOCK_TOKEN in "
      "the environment; -n is the number of ranks per host.\n"
      "Exit status: that of the first rank that failed, 128 + the signal if it was killed; 128 + "
      "the signal that has ended the job, such as 143 for SIGTERM; 2 if the program could not be "
      "started.");
  LaunchOptions& options = flags->options;
  expect_count(command->add_option("-n,--ranks", options.num_ranks, "ranks per host"))->required();
  auto* hosts = expect_names(command->add_option("--hosts", flags->hosts,
                                                 "the hosts, with commas between them; rank 0 is "
                                                 "on the first"))
                    ->type_name("NAMES");
  expect_count(command->add_option("--nodes", options.num_nodes, "the number of hosts"))
      ->excludes(hosts);
  expect_count(command->add_option("--node-rank", flags->node_rank,
                                   "which of the hosts this is, counted from 0; default: found in "
                                   "--hosts by name"),
               {.smallest = 0});
  command
      ->add_option("--master-addr", options.master_address,
                   "where rank 0 listens; default: the first host, or 127.0.0.1")
      ->type_name("HOST");
  expect_count(command->add_option("--master-port", options.master_port,
                                   "port that rank 0 listens on; default: a free one, or 29500 on "
                                   "several hosts"),
               {.smallest = 1, .largest = kLargestPort});
  expect_count(command->add_option("--max-restarts", options.max_restarts,
                                   "how often to start all ranks again after a failure"),
               {.smallest = 0})
      ->capture_default_str();
  expect_number(command->add_option("--grace", flags->grace_s,
                                    "seconds the other ranks have after a failure"),
                {.smallest = 0, .largest = kLongestGrace})
      ->capture_default_str();
  command->add_option("program", options.program, "what to start, with its arguments, after --")
      ->type_name("PROGRAM ...");
  command->callback([flags, &answer] {
    // The status of the ranks is the answer, whatever it means to them.
    answer = static_cast<Answer>(launch(resolve(*flags)));
  });
}

}  // namespace penstock
