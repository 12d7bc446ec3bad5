#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "example_inputs.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/simulator/profile.h"
#include "penstock/run/capture/script.h"
#include "penstock/run/partition/module_costs.h"
#include "penstock/run/partition/split_policy.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct InspectFlags {
  std::string model_path;
  std::vector<std::string> examples;
  int num_stages = 2;
  std::string format = "text";
};

std::string indented_name(const std::string& path) {
  if (path.empty()) return "(model)";
  const auto depth = static_cast<std::size_t>(std::count(path.begin(), path.end(), '.')) + 1;
  const std::size_t dot = path.rfind('.');
  return std::string(2 * depth, ' ') + (dot == std::string::npos ? path : path.substr(dot + 1));
}

std::string as_text(const CapturedModel& model, const std::vector<ModuleCost>& modules,
                    const PolicyReport& report, bool has_times) {
  std::string text = "inputs:";
  for (const CapturedModel::Argument& argument : model.arguments) text += " " + argument.name;
  std::size_t width = 6;
  for (const ModuleCost& module : modules) {
    width = std::max(width, indented_name(module.path).size());
  }
  text += fmt::format("\n\n{:<{}} {:>12} {:>14} {:>12} {:>12} {:>8}\n", "module", width,
                      "parameters", "bytes", "forward ms", "backward ms", "share");
  const Duration total = modules.front().forward + modules.front().backward;
  for (const ModuleCost& module : modules) {
    text += fmt::format("{:<{}} {:>12} {:>14}", indented_name(module.path), width,
                        module.num_parameters, module.parameter_bytes);
    if (has_times) {
      const Duration time = module.forward + module.backward;
      text += fmt::format(" {:>12.4f} {:>12.4f} {:>6.1f} %", to_milliseconds(module.forward),
                          to_milliseconds(module.backward),
                          total == Duration::zero() ? 0.0
                                                    : 100.0 * static_cast<double>(time.count()) /
                                                          static_cast<double>(total.count()));
    } else {
      text += fmt::format(" {:>12} {:>12} {:>8}", "-", "-", "-");
    }
    text += "\n";
  }
  text += fmt::format("\nproposed cuts into {}, balanced by {}:\n{}",
                      counted(static_cast<long long>(report.stages.size()), "stage", "stages"),
                      has_times ? "time" : "parameters; give --example to balance by time",
                      to_string(report));
  return text;
}

std::string as_json(const CapturedModel& model, const std::vector<ModuleCost>& modules,
                    const PolicyReport& report, bool has_times) {
  nlohmann::ordered_json json;
  for (const CapturedModel::Argument& argument : model.arguments) {
    json["inputs"].push_back(argument.name);
  }
  for (const ModuleCost& module : modules) {
    nlohmann::ordered_json entry;
    entry["path"] = module.path;
    entry["parameters"] = module.num_parameters;
    entry["bytes"] = module.parameter_bytes;
    if (has_times) {
      entry["forward_ms"] = to_milliseconds(module.forward);
      entry["backward_ms"] = to_milliseconds(module.backward);
    }
    json["modules"].push_back(std::move(entry));
  }
  json["balanced_by"] = has_times ? "time" : "parameters";
  for (const BalancedStage& stage : report.stages) {
    nlohmann::ordered_json entry;
    entry["first"] = report.pieces[static_cast<std::size_t>(stage.first_layer)].name;
    entry["last"] = report.pieces[static_cast<std::size_t>(stage.end_layer - 1)].name;
    entry["bytes"] = stage.bytes;
    if (has_times) entry["time_ms"] = to_milliseconds(stage.time());
    json["stages"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

void run_inspect(const InspectFlags& flags) {
  const torch::jit::Module module = load_script(flags.model_path);
  const Microbatch example = make_example_inputs(flags.examples);
  const CapturedModel model = capture_script(module);
  const bool has_times = !flags.examples.empty();
  const std::vector<ModuleCost> modules = module_costs(model, example);
  const auto report = std::make_shared<PolicyReport>();
  const SplitPolicy policy = has_times ? split_by_time(flags.num_stages, report)
                                       : split_by_parameters(flags.num_stages, report);
  policy(model, example);
  write_output(flags.format == "json" ? as_json(model, modules, *report, has_times)
                                      : as_text(model, modules, *report, has_times),
               "-");
}

}  // namespace

void add_inspect_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = program.add_subcommand(
      "inspect", "Show the modules of a TorchScript model and what they cost");
  command->footer(
      "Examples:\n"
      "  penstock inspect model.pt\n"
      "  penstock inspect model.pt --example 4x6:int64 --stages 4\n"
      "\n"
      "With the shapes of the inputs, runs the model operator by operator, forward and backward,\n"
      "and adds the times up by module. At the end, where 'penstock split' would cut. An example\n"
      "is SIZES[:TYPE], with the input's name and = in front for a keyword.");
  command->add_option("model", flags->model_path, "TorchScript file")
      ->required()
      ->type_name("FILE");
  command->add_option("--example", flags->examples, "shape of an input; one for each")
      ->type_name("SHAPE");
  expect_count(command->add_option("--stages", flags->num_stages, "number of stages to propose"))
      ->type_name("S")
      ->capture_default_str();
  expect_choice(command->add_option("--format", flags->format, "text for people, or json"),
                {"text", "json"})
      ->type_name("FORMAT")
      ->capture_default_str();
  command->callback([flags, &answer] {
    run_inspect(*flags);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
