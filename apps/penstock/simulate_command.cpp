#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
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

struct SimulateOptions {
  std::string source;
  SourceFlags source_flags;
  CostFlags costs;
  std::string format = "text";
};

constexpr std::array kIdleCauses = {IdleCause::WarmUp,   IdleCause::CoolDown, IdleCause::Imbalance,
                                    IdleCause::Transfer, IdleCause::Overhead, IdleCause::EndOfStep};
static_assert(kIdleCauses.size() == kNumIdleCauses);

// In the column of its cause.
std::string cell(IdleCause cause, std::string_view text) {
  constexpr std::size_t kWidth = 9;
  return fmt::format(" {:>{}}", text, std::max(kWidth, idle_cause_name(cause).size()));
}

std::string as_text(const Program& program, const CostModel& costs, const Timeline& timeline,
                    bool has_bytes) {
  std::string text =
      fmt::format("{}: {}; {}\n", program.name, describe(program), describe_costs(costs));
  text += fmt::format(
      "makespan      {:>12.6g} ms   bubble {:>6.2f} % of it (with a barrier at the end)\n",
      to_milliseconds(timeline.makespan), 100 * timeline.makespan_bubble);
  text += fmt::format("longest span  {:>12.6g} ms   bubble {:>6.2f} % of it (without one)\n\n",
                      to_milliseconds(timeline.longest_span), 100 * timeline.span_bubble);
  text += fmt::format("{:>14} {:>9}  because of\n", "busy", "idle");
  text += fmt::format("rank {:>9} {:>9}", "ms", "ms");
  for (const IdleCause cause : kIdleCauses) text += cell(cause, idle_cause_name(cause));
  text += fmt::format("   peak activations{}\n", has_bytes ? "  peak bytes" : "");
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankUsage& usage = timeline.ranks[rank];
    text += fmt::format("{:>4} {:>9.6g} {:>9.6g}", rank, to_milliseconds(usage.busy),
                        to_milliseconds(timeline.makespan - usage.busy));
    for (const IdleCause cause : kIdleCauses) {
      text += cell(cause, fmt::format("{:.6g}", to_milliseconds(usage.idle_for(cause))));
    }
    text += fmt::format("   {:>16.6g}", usage.peak_activations);
    text += has_bytes ? fmt::format(" {:>11}\n", usage.peak_bytes) : "\n";
  }
  return text;
}

nlohmann::ordered_json path_as_json(const Program& program, const Timeline& timeline) {
  nlohmann::ordered_json path = nlohmann::ordered_json::array();
  for (const Position at : critical_path(timeline)) {
    const ActionTime& time = timeline.at(at);
    path.push_back({{"rank", at.rank},
                    {"step", at.step},
                    {"action", to_string(action_at(program.schedule, at))},
                    {"start", to_milliseconds(time.start)},
                    {"end", to_milliseconds(time.end)}});
  }
  return path;
}

std::string as_json(const Program& program, const Timeline& timeline, bool has_bytes) {
  nlohmann::ordered_json json;
  json["schedule"] = program.name;
  json["num_ranks"] = program.schedule.num_ranks();
  json["num_stages"] = program.num_stages;
  json["num_microbatches"] = program.num_microbatches;
  json["unit"] = "ms";
  json["makespan"] = to_milliseconds(timeline.makespan);
  json["longest_span"] = to_milliseconds(timeline.longest_span);
  json["makespan_bubble"] = timeline.makespan_bubble;
  json["span_bubble"] = timeline.span_bubble;
  for (const RankUsage& usage : timeline.ranks) {
    json["busy"].push_back(to_milliseconds(usage.busy));
    json["idle"].push_back(to_milliseconds(timeline.makespan - usage.busy));
    json["span"].push_back(to_milliseconds(usage.span()));
    json["peak_activations"].push_back(usage.peak_activations);
    json["ledger"].push_back(
        {{"warm_up", to_milliseconds(usage.idle_for(IdleCause::WarmUp))},
         {"cool_down", to_milliseconds(usage.idle_for(IdleCause::CoolDown))},
         {"imbalance", to_milliseconds(usage.idle_for(IdleCause::Imbalance))},
         {"transfer", to_milliseconds(usage.idle_for(IdleCause::Transfer))},
         {"overhead", to_milliseconds(usage.idle_for(IdleCause::Overhead))},
         {"end_of_step", to_milliseconds(usage.idle_for(IdleCause::EndOfStep))}});
  }
  json["peak_bytes"] = nullptr;
  if (has_bytes) {
    for (const RankUsage& usage : timeline.ranks) json["peak_bytes"].push_back(usage.peak_bytes);
  }
  json["critical_path"] = path_as_json(program, timeline);
  return json.dump(2) + "\n";
}

void run_simulate(const SimulateOptions& options) {
  const Program program = load_program(options.source, options.source_flags);
  const CostModel costs = options.costs.resolve(program.stages_per_rank);
  const Timeline timeline = simulate(program.schedule, costs);
  const bool has_bytes = options.costs.have_sizes();
  write_output(options.format == "json" ? as_json(program, timeline, has_bytes)
                                        : as_text(program, costs, timeline, has_bytes),
               "-");
}

}  // namespace

void add_simulate_command(CLI::App& program, Answer& answer) {
  const auto options = std::make_shared<SimulateOptions>();
  CLI::App* command =
      program.add_subcommand("simulate", "Predict time, bubble and memory of a schedule");
  command->footer(
      "Examples:\n"
      "  penstock simulate 1f1b --ranks 4 --microbatches 8 --costs 10,10,8 --hop 0.5\n"
      "  penstock generate zbv -p 4 -m 8 | penstock simulate -\n"
      "\n"
      "Plays the lowered program: ranks take their actions in order, values travel while ranks\n"
      "compute. The ledger gives every idle millisecond one cause. A bubble is the share of time\n"
      "that ranks do not work: of the makespan if all ranks wait for the last one at the end of\n"
      "the step, of the longest span of a single rank if they do not.");
  command->add_option("schedule", options->source, "name, file, or - for standard input")
      ->required()
      ->type_name("NAME|FILE");
  add_source_options(*command, options->source_flags);
  add_cost_options(*command, options->costs);
  expect_choice(command->add_option("--format", options->format, "text for people, or json"),
                {"text", "json"})
      ->capture_default_str();
  command->callback([options, &answer] {
    run_simulate(*options);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
