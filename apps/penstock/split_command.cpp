#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "example_inputs.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/capture/script.h"
#include "penstock/run/partition/split_policy.h"
#include "penstock/run/partition/split_spec.h"
#include "penstock/run/pipe/save_stages.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct SplitFlags {
  std::string model_path;
  int num_stages = 0;
  std::vector<std::string> cut_before;
  std::vector<std::string> cut_after;
  std::string policy;
  std::vector<std::string> examples;
  std::string output;
};

SplitSpec spec_of(const SplitFlags& flags) {
  SplitSpec spec;
  for (const std::string& name : flags.cut_before) spec[name] = SplitPoint::Beginning;
  for (const std::string& name : flags.cut_after) {
    if (!spec.emplace(name, SplitPoint::End).second) {
      throw ArgumentError(
          fmt::format("--at and --after both name the module {}", quote(name, 200)));
    }
  }
  return spec;
}

std::string table_of(const std::vector<StageGraph>& stages) {
  std::string text = fmt::format("stage {:>12} {:>8}  parameters\n", "bytes", "inputs");
  for (std::size_t index = 0; index < stages.size(); ++index) {
    std::size_t bytes = 0;
    std::vector<std::string_view> names;
    for (const StageGraph::Tensor& tensor : stages[index].tensors) {
      if (tensor.is_buffer) continue;
      bytes += tensor.tensor.nbytes();
      names.push_back(tensor.name);
    }
    const std::string range = names.empty()       ? "none of its own"
                              : names.size() == 1 ? std::string(names.front())
                                                  : fmt::format("{} ... {} ({})", names.front(),
                                                                names.back(), names.size());
    text +=
        fmt::format("{:>5} {:>12} {:>8}  {}\n", index, bytes, stages[index].values.size(), range);
  }
  return text;
}

void run_split(const SplitFlags& flags) {
  const SplitSpec spec = spec_of(flags);
  if (spec.empty() == (flags.num_stages == 0)) {
    throw ArgumentError(
        "say where to cut: --stages for a number of stages, or --at and --after for modules, not "
        "both");
  }
  if (!spec.empty() && !flags.policy.empty()) {
    throw ArgumentError(
        "--policy chooses where to cut, and so do --at and --after; give one of them");
  }
  if (flags.policy == "time" && flags.examples.empty()) {
    throw ArgumentError(
        "--policy time runs the model, which needs --example with the shapes of its inputs");
  }
  const torch::jit::Module module = load_script(flags.model_path);
  const Microbatch example = make_example_inputs(flags.examples);
  const CapturedModel model = capture_script(module);
  CutPositions cuts;
  std::string decision;
  if (spec.empty()) {
    const auto report = std::make_shared<PolicyReport>();
    const bool by_time = flags.policy.empty() ? !flags.examples.empty() : flags.policy == "time";
    const SplitPolicy policy = by_time ? split_by_time(flags.num_stages, report)
                                       : split_by_parameters(flags.num_stages, report);
    cuts = policy(model, example);
    decision = to_string(*report);
  } else {
    cuts = cuts_of_spec(model, spec);
  }
  const std::vector<StageGraph> stages = split_graph(model, cuts);
  save_stages(stages, flags.output);
  write_output(decision.empty() ? table_of(stages) : decision, "-");
  write_output(
      fmt::format("wrote {} and manifest.json to {}\n",
                  counted(static_cast<long long>(stages.size()), "stage", "stages"), flags.output),
      "-");
}

}  // namespace

void add_split_command(CLI::App& program, Answer& answer) {
  const auto flags = std::make_shared<SplitFlags>();
  CLI::App* command =
      program.add_subcommand("split", "Cut a TorchScript model into stages, one file each");
  command->footer(
      "Examples:\n"
      "  penstock split model.pt --stages 4 --example 4x6:int64 --output stages\n"
      "  penstock split model.pt --at blocks.1 --after norm --output other_stages\n"
      "\n"
      "Writes stage_0.pt, stage_1.pt, ..., which torch.jit.load and torch::jit::load read, and\n"
      "manifest.json, which says how they fit together (docs/formats/manifest.md). A stage takes\n"
      "what the one before it returns. Tensors keep the names they have in the model.\n"
      "\n"
      "With --stages, cuts are chosen: by time if --example has the shapes of the inputs, one for\n"
      "each, in the size of a microbatch; else by the bytes of the parameters. An example is\n"
      "SIZES[:TYPE], with the input's name and = in front for a keyword: 4x16, 4x16:int64,\n"
      "mask=4x16:bool.");
  command->add_option("model", flags->model_path, "TorchScript file")
      ->required()
      ->type_name("FILE");
  expect_count(command->add_option("--stages", flags->num_stages, "number of stages"))
      ->type_name("S");
  command->add_option("--at", flags->cut_before, "cut before this module; may be repeated")
      ->type_name("NAME");
  command->add_option("--after", flags->cut_after, "cut after this module; may be repeated")
      ->type_name("NAME");
  expect_choice(
      command->add_option("--policy", flags->policy, "what to balance: time or parameters"),
      {"time", "parameters"})
      ->type_name("POLICY");
  command->add_option("--example", flags->examples, "shape of an input; one for each")
      ->type_name("SHAPE");
  command->add_option("--output", flags->output, "folder to write, new or empty")
      ->required()
      ->type_name("FOLDER");
  command->callback([flags, &answer] {
    run_split(*flags);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
