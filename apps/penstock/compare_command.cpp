#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "cost_options.h"
#include "option_values.h"
#include "penstock/plan/simulator/profile.h"
#include "penstock/plan/simulator/simulate.h"
#include "schedule_source.h"

namespace penstock {
namespace {

struct CompareOptions {
  std::vector<std::string> sources;
  SourceFlags source_flags;
  CostFlags costs;
  std::string format = "text";
};

struct Row {
  Program program;
  Duration makespan{};
  double makespan_bubble = 0;
  double span_bubble = 0;
  double peak_activations = 0;
  std::int64_t peak_bytes = 0;
};

Row simulate_row(const std::string& source, const CompareOptions& options) {
  Row row;
  row.program = load_program(source, options.source_flags);
  const CostModel costs = options.costs.resolve(row.program.stages_per_rank);
  const Timeline timeline = simulate(row.program.schedule, costs);
  row.makespan = timeline.makespan;
  row.makespan_bubble = timeline.makespan_bubble;
  row.span_bubble = timeline.span_bubble;
  for (const RankUsage& usage : timeline.ranks) {
    row.peak_activations = std::max(row.peak_activations, usage.peak_activations);
    row.peak_bytes = std::max(row.peak_bytes, usage.peak_bytes);
  }
  return row;
}

std::string as_text(const std::vector<Row>& rows, const CompareOptions& options) {
  std::size_t width = 8;
  for (const Row& row : rows) width = std::max(width, row.program.name.size());
  const bool has_bytes = options.costs.have_sizes();
  std::string text = fmt::format(
      "{:<{}}  stages    makespan   makespan    span      peak, worst rank\n"
      "{:<{}}  per rank  ms         bubble      bubble    activations{}\n",
      "", width, "schedule", width, has_bytes ? "  bytes" : "");
  for (const Row& row : rows) {
    const std::string activations = fmt::format("{:.6g}", row.peak_activations);
    text += fmt::format(
        "{:<{}}  {:<8}  {:<9.6g}  {:>6.2f} %  {:>6.2f} %    {}\n", row.program.name, width,
        row.program.stages_per_rank, to_milliseconds(row.makespan), 100 * row.makespan_bubble,
        100 * row.span_bubble,
        has_bytes ? fmt::format("{:<11}  {}", activations, row.peak_bytes) : activations);
  }
  const bool is_mixed = std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    return row.program.stages_per_rank != rows.front().program.stages_per_rank;
  });
  if (is_mixed && !options.costs.per_rank && options.costs.profile_path.empty()) {
    text +=
        "Ranks hold different numbers of stages of the same cost; add --per-rank to compare\n"
        "makespans of one model.\n";
  }
  return text;
}

std::string as_json(const std::vector<Row>& rows, const CompareOptions& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json.push_back({{"schedule", row.program.name},
                    {"stages_per_rank", row.program.stages_per_rank},
                    {"unit", "ms"},
                    {"makespan", to_milliseconds(row.makespan)},
                    {"makespan_bubble", row.makespan_bubble},
                    {"span_bubble", row.span_bubble},
                    {"peak_activations", row.peak_activations},
                    {"peak_bytes", nullptr}});
    if (options.costs.have_sizes()) json.back()["peak_bytes"] = row.peak_bytes;
  }
  return json.dump(2) + "\n";
}

void run_compare(const CompareOptions& options) {
  std::vector<Row> rows;
  for (const std::string& source : options.sources) rows.push_back(simulate_row(source, options));
  write_output(options.format == "json" ? as_json(rows, options) : as_text(rows, options), "-");
}

}  // namespace

void add_compare_command(CLI::App& program, Answer& answer) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* command = program.add_subcommand("compare", "Simulate several schedules side by side");
  command->footer(
      "Example:\n"
      "  penstock compare gpipe 1f1b interleaved1f1b zbv --ranks 8 --microbatches 32 --per-rank\n"
      "\n"
      "Takes names and files alike. One activation is one microbatch on all stages of a rank.");
  command->add_option("schedules", options->sources, "names, files, or - for standard input")
      ->required()
      ->type_name("NAME|FILE");
  add_source_options(*command, options->source_flags);
  add_cost_options(*command, options->costs);
  expect_choice(command->add_option("--format", options->format, "text for people, or json"),
                {"text", "json"})
      ->capture_default_str();
  command->callback([options, &answer] {
    run_compare(*options);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
