#include "penstock/run/pipe/save_stages.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "penstock/run/capture/script.h"
#include "penstock/run/partition/split_policy.h"
#include "tests/run/pipe/fixture.h"
#include "tests/run/support/whole_models.h"

namespace penstock {
namespace {

c10::IValue run_files(const std::filesystem::path& folder, int num_stages,
                      std::vector<c10::IValue> inputs) {
  for (int stage = 0; stage < num_stages; ++stage) {
    torch::jit::Module module =
        torch::jit::load((folder / ("stage_" + std::to_string(stage) + ".pt")).string());
    const c10::IValue output = module.forward(inputs);
    if (stage + 1 == num_stages) return output;
    inputs = output.toTupleRef().elements().vec();
  }
  return {};
}

class SaveStages : public ::testing::TestWithParam<WholeModel> {};

TEST_P(SaveStages, WritesFilesThatComputeWhatTheModelComputes) {
  const auto module = GetParam().make();
  module->eval();
  const auto inputs = GetParam().make_inputs(2);
  const CapturedModel model = trace_model(trace_source(module), inputs);
  const std::vector<StageGraph> stages =
      split_graph(model, split_by_parameters(3)(model, {inputs, {}}));
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("penstock_stages_" + GetParam().name);
  std::filesystem::remove_all(folder);
  save_stages(stages, folder);

  const c10::IValue found = run_files(folder, 3, inputs);
  const c10::IValue expected = module->forward(inputs);
  if (expected.isTensor()) {
    EXPECT_TRUE(torch::equal(found.toTensor(), expected.toTensor()));
  } else {
    for (const auto& entry : expected.toGenericDict()) {
      EXPECT_TRUE(
          torch::equal(found.toGenericDict().at(entry.key()).toTensor(), entry.value().toTensor()));
    }
  }
  std::set<std::string> names;
  for (int stage = 0; stage < 3; ++stage) {
    const torch::jit::Module file =
        torch::jit::load((folder / ("stage_" + std::to_string(stage) + ".pt")).string());
    for (const auto& parameter : file.named_parameters()) {
      names.insert(parameter.name);
      EXPECT_TRUE(torch::equal(parameter.value, module->named_parameters()[parameter.name]));
    }
  }
  EXPECT_EQ(names.size(), module->named_parameters().size());
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, SaveStages, ::testing::ValuesIn(all_whole_models()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace penstock
