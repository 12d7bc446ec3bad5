#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/graph/stage_graph.h"
#include "tests/run/graph/graphs.h"

namespace penstock {
namespace {

TEST(GraphModule, SwitchesDropoutBetweenTrainingAndEvaluation) {
  // One constant for two arguments: `train` of the first, `keepdim` of the second.
  const auto module = make_graph_module(stage_graph(R"(
graph(%x : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %on : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %a : Tensor = aten::dropout(%x, %p, %on)
  %b : Tensor = aten::feature_dropout(%a, %p, %on)
  %c : Tensor = aten::alpha_dropout(%b, %p, %on)
  %y : Tensor = aten::prod(%c, %zero, %on, %none)
  return (%y)
)",
                                                    {"x"}));
  const torch::Tensor x = torch::ones({64, 4});
  EXPECT_FALSE(torch::equal(module->forward({x}, {}).toTensor(), torch::ones({1, 4})));
  module->train(false);
  EXPECT_TRUE(torch::equal(module->forward({x}, {}).toTensor(), torch::ones({1, 4})));
  module->train(true);
  EXPECT_FALSE(torch::equal(module->forward({x}, {}).toTensor(), torch::ones({1, 4})));
}

StageGraph batch_norm_graph(bool has_statistics) {
  const char* text = has_statistics ? R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor):
  %none : NoneType = prim::Constant()
  %on : bool = prim::Constant[value=1]()
  %momentum : float = prim::Constant[value=0.1]()
  %eps : float = prim::Constant[value=1e-05]()
  %y : Tensor = aten::batch_norm(%x, %none, %none, %mean, %var, %on, %momentum, %eps, %on)
  return (%y)
)"
                                    : R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %on : bool = prim::Constant[value=1]()
  %momentum : float = prim::Constant[value=0.1]()
  %eps : float = prim::Constant[value=1e-05]()
  %y : Tensor = aten::batch_norm(%x, %none, %none, %none, %none, %on, %momentum, %eps, %on)
  return (%y)
)";
  StageGraph stage = stage_graph(text, {"x"});
  if (has_statistics) {
    stage.tensors = {{"norm.running_mean", torch::zeros({3}), true},
                     {"norm.running_var", torch::ones({3}), true}};
  }
  return stage;
}

TEST(GraphModule, UpdatesStatisticsInTrainingOnly) {
  const StageGraph stage = batch_norm_graph(true);
  const torch::Tensor mean = stage.tensors[0].tensor;
  const auto module = make_graph_module(stage);
  const torch::Tensor x = torch::randn({8, 3}) + 5;
  module->forward({x}, {});
  const torch::Tensor after_training = mean.clone();
  EXPECT_TRUE(torch::allclose(after_training, 0.1 * x.mean(0)));
  module->train(false);
  const torch::Tensor output = module->forward({x}, {}).toTensor();
  EXPECT_TRUE(torch::equal(mean, after_training));
  EXPECT_FALSE(torch::allclose(output.mean(0), torch::zeros({3}), 0, 1e-3));
}

TEST(GraphModule, NormsWithoutStatisticsAlwaysUseTheBatch) {
  const auto module = make_graph_module(batch_norm_graph(false));
  const torch::Tensor x = torch::randn({8, 3}) + 5;
  const torch::Tensor expected = module->forward({x}, {}).toTensor();
  module->train(false);
  EXPECT_TRUE(torch::equal(module->forward({x}, {}).toTensor(), expected));
}

TEST(GraphModule, MovesTensorsConstantsAndCreationOperators) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor, %weight : Tensor, %mean : Tensor):
  %none : NoneType = prim::Constant()
  %cpu : Device = prim::Constant[value="cpu"]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %float : int = prim::Constant[value=6]()
  %no : bool = prim::Constant[value=0]()
  %sizes : int[] = prim::ListConstruct(%two)
  %zeros : Tensor = aten::zeros(%sizes, %float, %none, %cpu, %none)
  %ones : Tensor = aten::ones(%sizes, %float, %none, %none, %none)
  %like : Tensor = aten::zeros_like(%x, %none, %none, %none, %none, %none)
  %moved : Tensor = aten::to(%x, %cpu, %float, %no, %no, %none)
  %a : Tensor = aten::add(%zeros, %ones, %one)
  %b : Tensor = aten::add(%a, %like, %one)
  %c : Tensor = aten::add(%b, %moved, %one)
  %d : Tensor = aten::mul(%c, %weight)
  %e : Tensor = aten::add(%d, %mean, %one)
  return (%e)
)",
                                 {"x"});
  stage.tensors = {{"weight", torch::ones({2}, torch::requires_grad())},
                   {"mean", torch::ones({2}), true}};
  // A literal tensor of the model, which becomes a constant.
  torch::jit::Node* add =
      const_cast<torch::jit::Node*>(find_node(*stage.graph->block(), "aten::mul"));
  {
    const torch::jit::WithInsertPoint before(add);
    add->replaceInput(1, stage.graph->insert(
                             c10::Symbol::fromQualString("aten::mul"),
                             {add->input(1), stage.graph->insertConstant(torch::full({2}, 3.0))}));
  }
  stage.aliases = {{"again.weight", stage.tensors[0].tensor}};
  const auto module = make_graph_module(std::move(stage));
  EXPECT_TRUE(
      torch::equal(module->forward({torch::ones({2})}, {}).toTensor(), torch::full({2}, 7.0)));

  module->to(torch::kMeta);
  const torch::Tensor output = module->forward({torch::ones({2}, torch::kMeta)}, {}).toTensor();
  EXPECT_TRUE(output.is_meta());
  for (const auto& [name, tensor] : module->named_parameters()) {
    EXPECT_TRUE(tensor.is_meta() && tensor.requires_grad()) << name;
  }
  EXPECT_EQ(module->named_parameters().size(), 2);
  EXPECT_TRUE(module->named_parameters()[1].second.is_same(module->named_parameters()[0].second));
  EXPECT_TRUE(module->named_buffers()[0].second.is_meta());
}

TEST(GraphModule, ToTheSameDeviceKeepsTheTensors) {
  StageGraph stage = batch_norm_graph(true);
  const torch::Tensor mean = stage.tensors[0].tensor;
  const auto module = make_graph_module(std::move(stage));
  module->to(torch::kCPU);
  EXPECT_TRUE(module->named_buffers()[0].second.is_same(mean));
}

}  // namespace
}  // namespace penstock
