#include "bench_transport_command.h"

#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_progress.h"
#include "option_values.h"
#include "penstock/base/text.h"
#include "penstock/run/bench/transport_benchmark.h"
#include "penstock/run/world/world.h"
#include "prepare_process.h"
#include "schedule_io.h"
#include "sibling_ranks.h"

namespace penstock {
namespace {

struct TransportFlags {
  TransportBenchmarkOptions options;
  std::string sizes;
  bool as_json = false;
  SiblingFlags sibling;
};

// The numbers of "4,65536"; empty unless all of them are whole numbers from 0 up.
std::vector<std::int64_t> parse_sizes(const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (const std::string& item : split_list(text)) {
    std::int64_t size = 0;
    const char* const end = item.data() + item.size();
    const auto [rest, error] = std::from_chars(item.data(), end, size);
    if (error != std::errc() || rest != end || size < 0) return {};
    sizes.push_back(size);
  }
  return sizes;
}

std::string as_json(const TransportBenchmark& result, const TransportFlags& flags) {
  nlohmann::ordered_json json;
  json["samples"] = flags.options.num_samples;
  json["receiver_reads"] = flags.options.reads;
  json["pinned"] = flags.options.pins_threads;
  for (const TransportSeries& one : result.series) {
    auto& times = json["ways"][one.way];
    for (const TransportTime& time : one.times) {
      times.push_back({{"bytes", time.bytes},
                       {"median_s", time.median},
                       {"best_s", time.best},
                       {"bytes_per_s", static_cast<double>(time.bytes) / time.median}});
    }
  }
  for (const HeaderCost& cost : result.header) {
    json["header"].push_back({{"bytes", cost.bytes},
                              {"pairs", cost.num_pairs},
                              {"median_s", cost.median},
                              {"low_quartile_s", cost.low_quartile},
                              {"high_quartile_s", cost.high_quartile},
                              {"processor_s", cost.processor_time}});
  }
  return json.dump() + "\n";
}

std::string size_text(std::int64_t bytes) {
  constexpr std::int64_t kKibi = 1024;
  if (bytes >= kKibi * kKibi && bytes % (kKibi * kKibi) == 0) {
    return fmt::format("{} Mi", bytes / (kKibi * kKibi));
  }
  if (bytes >= kKibi && bytes % kKibi == 0) return fmt::format("{} Ki", bytes / kKibi);
  return std::to_string(bytes);
}

// One row per size, one column per way; `number` picks what is printed.
template <typename Number>
std::string table(const std::string& title, const std::vector<TransportSeries>& series,
                  const Number& number) {
  std::string text = fmt::format("{:<32}", title);
  for (const TransportSeries& one : series) text += fmt::format("{:>11}", one.way);
  text += "\n";
  for (std::size_t row = 0; row < series.front().times.size(); ++row) {
    text += fmt::format("{:<32}", size_text(series.front().times[row].bytes) + " bytes");
    for (const TransportSeries& one : series)
      text += fmt::format("{:>11.2f}", number(one.times[row]));
    text += "\n";
  }
  return text;
}

constexpr double kMicro = 1e6;

std::string header_table(const std::vector<HeaderCost>& header) {
  if (header.empty()) return {};
  std::string text =
      fmt::format("\n{:<32}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "microseconds: gloo less c10d",
                  "median", "quartile", "quartile", "processor", "pairs");
  for (const HeaderCost& cost : header) {
    text += fmt::format("{:<32}{:>11.2f}{:>11.2f}{:>11.2f}{:>11.2f}{:>11}\n",
                        size_text(cost.bytes) + " bytes", kMicro * cost.median,
                        kMicro * cost.low_quartile, kMicro * cost.high_quartile,
                        kMicro * cost.processor_time, cost.num_pairs);
  }
  return text;
}

std::string as_text(const TransportBenchmark& result) {
  constexpr double kGiga = 1e9;
  const std::vector<TransportSeries>& series = result.series;
  return table("microseconds one way, median", series,
               [](const TransportTime& time) { return kMicro * time.median; }) +
         "\n" +
         table("microseconds one way, best", series,
               [](const TransportTime& time) { return kMicro * time.best; }) +
         "\n" +
         table("GB/s, median", series,
               [](const TransportTime& time) {
                 return static_cast<double>(time.bytes) / time.median / kGiga;
               }) +
         header_table(result.header);
}

void run(TransportFlags flags) {
  if (!flags.sizes.empty()) flags.options.sizes = parse_sizes(flags.sizes);
  prepare_process();
  resolve(flags.options);  // before there is a second process to complain
  const SiblingRanks ranks(flags.sibling, 2);
  World world(ranks.world());
  const bool is_first = world.rank() == 0;
  const TransportBenchmark result = run_transport_benchmark(
      world, flags.options, is_first ? show_progress : std::function<void(double)>());
  if (!is_first) return;
  write_output(flags.as_json ? as_json(result, flags) : as_text(result), "-");
}

}  // namespace

void add_bench_transport_command(CLI::App& bench, Answer& answer) {
  auto flags = std::make_shared<TransportFlags>();
  auto* command = bench.add_subcommand("transport", "Time messages between two ranks, way by way");
  command->footer(
      "Examples:\n"
      "  penstock bench transport\n"
      "  penstock bench transport --sizes 4,65536,1048576 --read --json\n"
      "\n"
      "Starts a second process. A message is one tensor; its time is half of a round trip. memcpy "
      "is one copy in one thread, threads, shm and gloo are Penstock's transports, and c10d is "
      "libtorch's Gloo alone. What gloo takes longer than c10d, the cost of the header, is the "
      "median of differences between single round trips that take turns over one connection.");
  command
      ->add_option("--sizes", flags->sizes,
                   "bytes of the messages, multiples of 4; default: 4 to 16777216 by fours")
      ->check([](const std::string& text) -> std::string {
        if (!parse_sizes(text).empty()) return "";
        return fmt::format("expected numbers of bytes, for example 4,65536, found {}", quote(text));
      })
      ->type_name("BYTES,...");
  expect_count(command->add_option("--samples", flags->options.num_samples, "samples of each time"))
      ->capture_default_str();
  command->add_flag("--read", flags->options.reads,
                    "let the receiver read every element before it answers");
  command->add_flag("--pin", flags->options.pins_threads, "pin the threads of ranks to cores");
  command->add_flag("--json", flags->as_json, "print one line of JSON");
  add_sibling_flags(*command, flags->sibling);
  command->callback([flags, &answer] {
    run(*flags);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
