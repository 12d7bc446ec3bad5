#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "byte_size.h"
#include "commands.h"
#include "cost_options.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/schedule/json.h"
#include "penstock/plan/search/search.h"
#include "penstock/plan/simulator/profile.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct SearchFlags {
  SearchOptions search;
  CostFlags costs;
  std::string memory;
  bool counts_bytes = false;  // else --memory counts microbatches
  std::string placement = "any";
  std::string objective = "span";
  int effort = static_cast<int>(SearchOptions{}.effort);
  OutputOptions output;
};

// Where memory counts microbatches, one of them takes two bytes of a rank: a V placement halves it.
constexpr std::int64_t kBytesPerMicrobatch = 2;

std::int64_t memory_limit(const SearchFlags& flags) {
  if (flags.memory.empty()) return SearchOptions::kNoLimit;
  const ByteSize size = parse_byte_size(flags.memory).value();
  if (flags.counts_bytes) return static_cast<std::int64_t>(size.bytes());
  if (size.has_unit) {
    throw ArgumentError(fmt::format(
        "--memory: {} is a size, but without --bytes or --profile it counts microbatches",
        quote(flags.memory)));
  }
  return static_cast<std::int64_t>(std::min(size.number * kBytesPerMicrobatch, 9e18));
}

SearchOptions resolve(const SearchFlags& flags) {
  SearchOptions options = flags.search;
  options.costs = flags.costs.resolve(1);
  if (!flags.counts_bytes) options.costs.stages.front().activation_bytes = kBytesPerMicrobatch;
  options.memory_limit_bytes = memory_limit(flags);
  if (flags.placement == "looped") options.placement = SearchPlacement::Looped;
  if (flags.placement == "v") options.placement = SearchPlacement::V;
  if (flags.objective == "makespan") options.objective = SearchObjective::Makespan;
  options.effort = flags.effort;
  return options;
}

std::string memory_text(std::int64_t bytes, const SearchFlags& flags) {
  if (flags.counts_bytes) return fmt::format("{}", bytes);
  return fmt::format("{:.6g}", static_cast<double>(bytes) / kBytesPerMicrobatch);
}

std::int64_t worst_peak(const SearchFigures& figures) {
  return *std::max_element(figures.peak_bytes.begin(), figures.peak_bytes.end());
}

constexpr std::size_t kLabelWidth = 36;

template <typename Times>  // SearchFigures or SearchBound
std::string row(const std::string& label, const Times& times, const std::string& peak) {
  return fmt::format("{:<{}} {:>10.6g} {:>8.2f} % {:>10.6g} {:>8.2f} %  {:>12}\n", label,
                     kLabelWidth, to_milliseconds(times.span), 100 * times.span_bubble,
                     to_milliseconds(times.makespan), 100 * times.makespan_bubble, peak);
}

std::string as_text(const SearchResult& result, const SearchOptions& options,
                    const SearchFlags& flags) {
  std::string text = fmt::format(
      "{}, {}, {} placement; {} per stage\n"
      "found by: {}\n\n",
      counted(options.num_ranks, "rank", "ranks"),
      counted(options.num_microbatches, "microbatch", "microbatches"),
      search_placement_name(result.placement), describe_costs(result.costs), result.method);
  text += fmt::format("{:<{}} {:>21} {:>21}  {:>12}\n", "", kLabelWidth, "span of a rank",
                      "makespan", "peak memory");
  text += fmt::format("{:<{}} {:>10} {:>10} {:>10} {:>10}  {:>12}\n", "", kLabelWidth, "ms",
                      "bubble", "ms", "bubble", flags.counts_bytes ? "bytes" : "microbatches");
  text += row("found", result.figures, memory_text(worst_peak(result.figures), flags));
  if (result.best_built_in) {
    const SearchFigures& figures = result.best_built_in->figures;
    text += row("best built-in, " + result.best_built_in->name, figures,
                memory_text(worst_peak(figures), flags));
  }
  const bool has_limit = options.memory_limit_bytes != SearchOptions::kNoLimit;
  text += row("lower bound, and the memory limit", result.bound,
              has_limit ? memory_text(options.memory_limit_bytes, flags) : "none");
  text += fmt::format("{:<{}} {:>18.2f} pp {:>18.2f} pp\n", "gap to the lower bound", kLabelWidth,
                      100 * (result.figures.span_bubble - result.bound.span_bubble),
                      100 * (result.figures.makespan_bubble - result.bound.makespan_bubble));
  if (!result.best_built_in) text += "No built-in schedule fits into the limit.\n";
  return text;
}

template <typename Times>
nlohmann::ordered_json times_as_json(const Times& times) {
  nlohmann::ordered_json json;
  json["span"] = to_milliseconds(times.span);
  json["makespan"] = to_milliseconds(times.makespan);
  json["span_bubble"] = times.span_bubble;
  json["makespan_bubble"] = times.makespan_bubble;
  return json;
}

nlohmann::ordered_json peaks_as_json(const SearchFigures& figures, const SearchFlags& flags) {
  nlohmann::ordered_json peaks = nlohmann::ordered_json::array();
  for (const std::int64_t bytes : figures.peak_bytes) {
    if (flags.counts_bytes) {
      peaks.push_back(bytes);
    } else {
      peaks.push_back(static_cast<double>(bytes) / kBytesPerMicrobatch);
    }
  }
  return peaks;
}

// A schedule file as any other, with one more member.
std::string as_json(const SearchResult& result, const SearchOptions& options,
                    const SearchFlags& flags) {
  nlohmann::ordered_json json = times_as_json(result.figures);
  json["peak_memory"] = peaks_as_json(result.figures, flags);
  json["unit"] = "ms";
  json["memory_unit"] = flags.counts_bytes ? "byte" : "microbatch";
  if (options.memory_limit_bytes == SearchOptions::kNoLimit) {
    json["memory_limit"] = nullptr;
  } else if (flags.counts_bytes) {
    json["memory_limit"] = options.memory_limit_bytes;
  } else {
    json["memory_limit"] = static_cast<double>(options.memory_limit_bytes) / kBytesPerMicrobatch;
  }
  json["placement"] = result.placement == SearchPlacement::V ? "v" : "looped";
  json["objective"] = flags.objective;
  json["method"] = result.method;
  json["num_candidates"] = result.num_candidates;
  json["lower_bound"] = times_as_json(result.bound);
  json["gap"] = {
      {"span_bubble", result.figures.span_bubble - result.bound.span_bubble},
      {"makespan_bubble", result.figures.makespan_bubble - result.bound.makespan_bubble}};
  json["best_built_in"] = nullptr;
  if (result.best_built_in) {
    const SearchFigures& figures = result.best_built_in->figures;
    json["best_built_in"] = {{"schedule", result.best_built_in->name}};
    json["best_built_in"].update(times_as_json(figures));
    json["best_built_in"]["peak_memory"] = peaks_as_json(figures, flags);
  }
  const std::string schedule = write_json(result.schedule);
  const std::string open = schedule.substr(0, schedule.rfind('\n', schedule.size() - 2));
  return fmt::format("{},\n  \"search\": {}\n}}\n", open, json.dump());
}

void require_possible(const SearchOptions& options, const SearchFlags& flags) {
  if (flags.counts_bytes) return;  // search() says it in bytes
  const std::int64_t smallest = smallest_memory_limit(options);
  if (options.memory_limit_bytes >= smallest) return;
  throw ArgumentError(
      fmt::format("no schedule fits into {} microbatches per rank; the smallest limit that works "
                  "is {}",
                  flags.memory, memory_text(smallest, flags)));
}

void run_search(const SearchFlags& flags) {
  const SearchOptions options = resolve(flags);
  require_possible(options, flags);
  const SearchResult result = search(options);
  if (flags.output.format == "json") {
    write_output(as_json(result, options, flags), flags.output.path);
    return;
  }
  write_schedule(result.schedule, flags.output);
  const std::string figures = as_text(result, options, flags);
  if (flags.output.path == "-") {
    fmt::print(stderr, "{}", figures);
  } else {
    write_output(figures, "-");
  }
}

void add_search_options(CLI::App& command, SearchFlags& flags) {
  auto* costs = expect_numbers(command.add_option("--costs", flags.costs.costs,
                                                  "milliseconds that F, I and W take on a rank"),
                               "1,1,1")
                    ->type_name("F,I,W")
                    ->capture_default_str();
  auto* hop =
      expect_numbers(command.add_option("--hop", flags.costs.hop, "milliseconds from rank to rank"),
                     "0.5")
          ->type_name("T")
          ->capture_default_str();
  auto* bytes =
      expect_numbers(
          command.add_option("--bytes", flags.costs.bytes,
                             "bytes a rank keeps per microbatch from F to I, and from I to W"),
          "1,0")
          ->type_name("MB,MW");
  command
      .add_option("--profile", flags.costs.profile_path,
                  "read all costs, stage by stage, from JSON")
      ->excludes(costs)
      ->excludes(hop)
      ->excludes(bytes)
      ->type_name("FILE");
  expect_byte_size(
      command.add_option("--memory", flags.memory,
                         "most that a rank may hold: bytes, also as 40GiB; without --bytes and "
                         "--profile, microbatches (default: no limit)"))
      ->type_name("BYTES");
  expect_choice(command.add_option("--placement", flags.placement,
                                   "one stage per rank, two in a V, or what is better"),
                {"any", "looped", "v"})
      ->capture_default_str();
  expect_choice(command.add_option("--objective", flags.objective,
                                   "what to make short: the span of a rank, or the makespan"),
                {"span", "makespan"})
      ->capture_default_str();
  expect_count(command.add_option("--effort", flags.effort,
                                  "actions of all candidates together; 100000 take about 10 ms"),
               {.smallest = 0})
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace

void add_search_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<SearchFlags>();
  CLI::App* command =
      program.add_subcommand("search", "Find a schedule for given costs and a memory limit");
  command->footer(
      "Examples:\n"
      "  penstock search -p 8 -m 24 --costs 18.5,18.1,9.3 --hop 0.6 --memory 16 "
      "--output found.csv\n"
      "  penstock search -p 4 -m 8 --bytes 3000000,1000000 --memory 20MB --format json | penstock "
      "check -\n"
      "\n"
      "Prints the schedule, and on standard error (with --output: on standard output) what it\n"
      "costs, next to the best built-in schedule that fits and to a proven lower bound. It is\n"
      "never worse than the former. Costs and bytes are those of a rank; a stage of a V placement\n"
      "has half of them. Without --bytes a microbatch counts one from its F to its I or B. With\n"
      "--format json the figures are the member \"search\" of the schedule.");
  expect_count(command->add_option("-p,--ranks", flags->search.num_ranks, "number of ranks"))
      ->required()
      ->type_name("P");
  expect_count(command->add_option("-m,--microbatches", flags->search.num_microbatches,
                                   "number of microbatches"))
      ->required()
      ->type_name("M");
  add_search_options(*command, *flags);
  add_output_options(*command, flags->output);
  command->callback([command, flags, &answer] {
    flags->counts_bytes = command->count("--bytes") > 0 || command->count("--profile") > 0;
    run_search(*flags);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
