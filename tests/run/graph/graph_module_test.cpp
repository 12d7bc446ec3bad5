#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/run/graph/graph_error.h"
#include "penstock/run/graph/internal/graph_program.h"
#include "penstock/run/graph/internal/slot_machine.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/random/random_scope.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/names_of.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// How many references there are to a tensor while an operator has it.
torch::Tensor count_uses(const torch::Tensor& tensor) {
  return torch::tensor(static_cast<std::int64_t>(tensor.use_count()));
}

TORCH_LIBRARY(test_graph, library) {
  library.def("count_uses(Tensor tensor) -> Tensor", count_uses);
}

constexpr const char* kLinear = R"(
graph(%x : Tensor, %weight : Tensor, %bias : Tensor):
  %one : int = prim::Constant[value=1]()
  %t : Tensor = aten::t(%weight)
  %h : Tensor = aten::addmm(%bias, %x, %t, %one, %one)
  %y : Tensor = aten::relu(%h)
  return (%y)
)";

StageGraph linear_graph() {
  torch::manual_seed(1);
  StageGraph stage = stage_graph(kLinear, {"x"});
  stage.takes_keywords = true;
  stage.tensors = {{"fc.weight", torch::randn({3, 4}, torch::requires_grad())},
                   {"fc.bias", torch::randn({3}, torch::requires_grad())}};
  return stage;
}

TEST(GraphModule, ComputesAndDifferentiatesLikeItsOperators) {
  const StageGraph stage = linear_graph();
  const torch::Tensor weight = stage.tensors[0].tensor;
  const torch::Tensor bias = stage.tensors[1].tensor;
  const torch::Tensor x = torch::randn({2, 4}, torch::requires_grad());
  const auto module = make_graph_module(stage);
  const torch::Tensor output = module->forward({x}, {}).toTensor();
  const torch::Tensor expected = torch::relu(torch::addmm(bias, x, weight.t()));
  EXPECT_TRUE(torch::equal(output, expected));
  const auto gradients = torch::autograd::grad({output.sum()}, {x, weight, bias});
  const auto wanted = torch::autograd::grad({expected.sum()}, {x, weight, bias});
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::equal(gradients[i], wanted[i])) << i;
  }
}

TEST(GraphModule, HoldsNothingOfTheInputsAfterARun) {
  const auto module = make_graph_module(linear_graph());
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({2, 4});
  module->forward({x}, {});
  EXPECT_EQ(x.use_count(), 1);
}

TEST(GraphModule, LetsGoOfAValueWithItsLastUse) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor):
  %h : Tensor = aten::exp(%x)
  %y : Tensor = aten::relu(%h)
  %z : Tensor = test_graph::count_uses(%y)
  return (%z)
)",
                                 {"x"});
  const auto module = make_graph_module(std::move(stage));
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(module->forward({torch::ones({2})}, {}).toTensor().item<int>(), 1);
}

TEST(GraphModule, MakesAndTakesApartListsTuplesAndDicts) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %two : int = prim::Constant[value=2]()
  %key : str = prim::Constant[value="sum"]()
  %chunks : Tensor[] = aten::chunk(%x, %two, %zero)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%chunks)
  %list : Tensor[] = prim::ListConstruct(%b, %a)
  %swapped : Tensor = aten::cat(%list, %zero)
  %tuple : (Tensor, Tensor) = prim::TupleConstruct(%swapped, %a)
  %first : Tensor, %second : Tensor = prim::TupleUnpack(%tuple)
  %dims : int[] = prim::ListConstruct(%zero)
  %none : NoneType = prim::Constant()
  %keep : bool = prim::Constant[value=0]()
  %sum : Tensor = aten::sum(%first, %dims, %keep, %none)
  %dict : Dict(str, Tensor) = prim::DictConstruct(%key, %sum)
  %result : (Tensor, Tensor, Dict(str, Tensor)) = prim::TupleConstruct(%first, %second, %dict)
  return (%result)
)",
                                 {"x"});
  EXPECT_NE(make_slot_machine(stage), nullptr);
  const auto module = make_graph_module(stage);
  for (int run = 0; run < 2; ++run) {
    const c10::IValue output = module->forward({torch::tensor({{1.0, 2.0}, {3.0, 4.0}})}, {});
    const auto& elements = output.toTupleRef().elements();
    EXPECT_TRUE(torch::equal(elements[0].toTensor(), torch::tensor({{3.0, 4.0}, {1.0, 2.0}})));
    EXPECT_TRUE(torch::equal(elements[1].toTensor(), torch::tensor({{1.0, 2.0}})));
    EXPECT_TRUE(
        torch::equal(elements[2].toGenericDict().at("sum").toTensor(), torch::tensor({4.0, 6.0})));
  }
}

TEST(GraphModule, DoesNotShareAConstantListThatARunMayChange) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %list : int[] = prim::ListConstruct(%one)
  %longer : int[] = aten::append(%list, %one)
  %length : int = aten::len(%list)
  return (%length)
)",
                                 {"x"});
  const auto module = make_graph_module(std::move(stage));
  EXPECT_EQ(module->forward({torch::ones({1})}, {}).toInt(), 2);
  EXPECT_EQ(module->forward({torch::ones({1})}, {}).toInt(), 2);
}

TEST(GraphModule, ReturnsAnInputOrAConstant) {
  const auto echo = make_graph_module(stage_graph("graph(%x : Tensor):\n  return (%x)", {"x"}));
  const torch::Tensor x = torch::ones({2});
  EXPECT_TRUE(echo->forward({x}, {}).toTensor().is_same(x));
  const auto constant = make_graph_module(stage_graph(
      "graph(%x : Tensor):\n  %c : int = prim::Constant[value=7]()\n  return (%c)", {"x"}));
  EXPECT_EQ(constant->forward({x}, {}).toInt(), 7);
  EXPECT_EQ(constant->forward({x}, {}).toInt(), 7);
}

constexpr const char* kControlFlow = R"(
graph(%x : Tensor, %flag : bool, %weight : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %on : bool = prim::Constant[value=1]()
  %y : Tensor = prim::If(%flag)
    block0():
      %a : Tensor = aten::mul(%x, %weight)
      %d : Tensor = aten::dropout(%a, %p, %on)
      -> (%d)
    block1():
      -> (%x)
  return (%y)
)";

StageGraph control_flow_graph() {
  StageGraph stage = stage_graph(kControlFlow, {"x", "flag"});
  stage.tensors = {{"weight", torch::full({32}, 3.0).requires_grad_()}};
  return stage;
}

TEST(GraphModule, RunsControlFlowInTheInterpreter) {
  StageGraph stage = control_flow_graph();
  EXPECT_EQ(make_slot_machine(stage), nullptr);
  const auto module = make_graph_module(std::move(stage));
  module->train(false);
  const torch::Tensor x = torch::ones({32});
  EXPECT_TRUE(torch::equal(module->forward({x, false}, {}).toTensor(), x));
  const torch::Tensor output = module->forward({x, true}, {}).toTensor();
  EXPECT_TRUE(torch::equal(output, 3 * x));
  EXPECT_EQ(output.grad_fn()->name(), "MulBackward0") << "not one node for the whole graph";
}

TEST(GraphModule, SeedsRandomSitesWhereverTheGraphIsCut) {
  const auto draw = [](const char* text, const char* kind, std::uint64_t site, int stage_index) {
    StageGraph stage = text == kControlFlow ? control_flow_graph() : stage_graph(text, {"x"});
    stage.random_sites[find_node(*stage.graph->block(), kind)] = site;
    const auto module = make_graph_module(std::move(stage));
    const RandomScope scope({.step_seed = 3, .microbatch = 1, .stage = stage_index});
    const torch::Tensor x = torch::ones({32});
    return text == kControlFlow ? module->forward({x, true}, {}).toTensor() / 3
                                : module->forward({x}, {}).toTensor();
  };
  constexpr const char* kDropout = R"(
graph(%x : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %on : bool = prim::Constant[value=1]()
  %y : Tensor = aten::dropout(%x, %p, %on)
  return (%y)
)";
  const torch::Tensor expected = draw(kDropout, "aten::dropout", 5, 0);
  EXPECT_TRUE(torch::equal(draw(kDropout, "aten::dropout", 5, 2), expected));
  EXPECT_TRUE(torch::equal(draw(kControlFlow, "aten::dropout", 5, 1), expected));
  EXPECT_FALSE(torch::equal(draw(kDropout, "aten::dropout", 6, 0), expected));
}

TEST(GraphModule, DrawsOtherNumbersInEachRoundOfALoop) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %on : bool = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %zero : int = prim::Constant[value=0]()
  %first : Tensor, %last : Tensor = prim::Loop(%two, %on, %x, %x)
    block0(%i : int, %a : Tensor, %b : Tensor):
      %d : Tensor = aten::dropout(%x, %p, %on)
      -> (%on, %b, %d)
  %list : Tensor[] = prim::ListConstruct(%first, %last)
  %y : Tensor = aten::stack(%list, %zero)
  return (%y)
)",
                                 {"x"});
  stage.random_sites[find_node(*stage.graph->block(), "aten::dropout")] = 4;
  const auto module = make_graph_module(std::move(stage));
  const torch::Tensor x = torch::ones({64});
  const auto rounds = [&] {
    const RandomScope scope({.step_seed = 3});
    return module->forward({x}, {}).toTensor();
  };
  const torch::Tensor drawn = rounds();
  EXPECT_FALSE(torch::equal(drawn[0], drawn[1]));
  EXPECT_TRUE(torch::equal(rounds(), drawn));
  RandomScope scope({.step_seed = 3});
  scope.seed_site(4);
  EXPECT_TRUE(torch::equal(torch::dropout(x, 0.5, true), drawn[0]));
}

TEST(GraphModule, SwitchesOffGradientsForTheRestOfItsRunOnly) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor):
  %off : bool = prim::Constant[value=0]()
  aten::set_grad_enabled(%off)
  %y : Tensor = aten::exp(%x)
  return (%y)
)",
                                 {"x"});
  const auto module = make_graph_module(std::move(stage));
  const torch::Tensor x = torch::ones({2}, torch::requires_grad());
  EXPECT_FALSE(module->forward({x}, {}).toTensor().requires_grad());
  EXPECT_TRUE(torch::GradMode::is_enabled());
}

TEST(GraphModule, NamesTheOperatorThatFailed) {
  StageGraph stage = linear_graph();
  const_cast<torch::jit::Node*>(find_node(*stage.graph->block(), "aten::addmm"))
      ->setScope(c10::make_intrusive<torch::jit::Scope>()->push(c10::Symbol::scope("layers.3.fc")));
  const auto module = make_graph_module(std::move(stage));
  const std::string message = message_of([&] { module->forward({torch::ones({2, 5})}, {}); });
  EXPECT_THAT(message, HasSubstr("aten::addmm in layers.3.fc: "));
  EXPECT_THAT(message, HasSubstr("2x5"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("frame #0")));
  EXPECT_EQ(module->forward({torch::ones({2, 4})}, {}).toTensor().size(1), 3) << "works again";
}

TEST(GraphModule, BindsInputsByPositionAndByName) {
  StageGraph stage = stage_graph(R"(
graph(%a : Tensor, %b : Tensor, %scale : float):
  %one : int = prim::Constant[value=1]()
  %d : Tensor = aten::sub(%a, %b, %one)
  %y : Tensor = aten::mul(%d, %scale)
  return (%y)
)",
                                 {"a", "b", "scale"});
  stage.takes_keywords = true;
  stage.defaults = {{"scale", 10.0}};
  const auto module = make_graph_module(std::move(stage));
  const torch::Tensor five = torch::tensor(5.0);
  const torch::Tensor three = torch::tensor(3.0);
  EXPECT_EQ(module->keywords(), (std::vector<std::string>{"a", "b", "scale"}));
  EXPECT_EQ(module->forward({five, three, 1.0}, {}).toTensor().item<float>(), 2);
  EXPECT_EQ(module->forward({five}, {{"b", three}}).toTensor().item<float>(), 20);
  EXPECT_EQ(
      module->forward({}, {{"b", three}, {"a", five}, {"scale", 2.0}}).toTensor().item<float>(), 4);
  EXPECT_EQ(message_of([&] { module->forward({five}, {}); }),
            R"(the input "b" is missing; the stage takes "a", "b", "scale")");
  EXPECT_EQ(message_of([&] {
              module->forward({five, three}, {{"b", three}});
            }),
            R"(the input "b" was given twice, by position and by name)");
  EXPECT_EQ(message_of([&] {
              module->forward({five, three}, {{"mask", three}});
            }),
            R"(the stage has no input "mask"; it takes "a", "b", "scale")");
  EXPECT_EQ(message_of([&] {
              module->forward({five, three, five, five}, {});
            }),
            R"(the stage takes 3 inputs ("a", "b", "scale"), but was given 4)");
}

TEST(GraphModule, OfALaterStageTakesNoNames) {
  StageGraph stage = linear_graph();
  stage.takes_keywords = false;
  const auto module = make_graph_module(std::move(stage));
  EXPECT_TRUE(module->keywords().empty());
  EXPECT_EQ(message_of([&] {
              module->forward({}, {{"x", torch::ones({1, 4})}});
            }),
            R"(the stage takes no inputs by name, but was given "x")");
}

TEST(GraphModule, ListsTensorsByTheirNamesInTheModel) {
  StageGraph stage = stage_graph(R"(
graph(%x : Tensor, %w : Tensor, %b : Tensor, %u1 : Tensor, %u2 : Tensor):
  return (%x)
)",
                                 {"x"});
  const torch::Tensor tied = torch::ones({2}, torch::requires_grad());
  stage.tensors = {{"a.weight", torch::ones({1}, torch::requires_grad())},
                   {"a.mean", torch::ones({1}), true}};
  stage.shared = {{"embedding.weight", tied}, {"embedding.weight", tied}};
  stage.claims = std::make_shared<SharedClaims>();
  stage.aliases = {{"head.weight", tied}, {"b.mean", stage.tensors[1].tensor}};
  const auto module = make_graph_module(stage);
  EXPECT_EQ(names_of(module->named_parameters()),
            (std::vector<std::string>{"a.weight", "embedding.weight", "head.weight"}));
  EXPECT_EQ(names_of(module->named_buffers()), (std::vector<std::string>{"a.mean", "b.mean"}));
  EXPECT_EQ(names_of(module->shared_parameters()),
            (std::vector<std::string>{"embedding.weight", "embedding.weight"}));
  EXPECT_TRUE(module->named_parameters()[1].second.is_same(tied));
  EXPECT_EQ(message_of([&] { module->forward({torch::ones({1})}, {}); }),
            "the stage takes 2 uses of shared parameters as last inputs");
}

TEST(GraphModule, RefusesListsThatDoNotFitTheGraph) {
  EXPECT_EQ(message_of([] { make_graph_module({}); }), "the stage has no graph");
  EXPECT_EQ(message_of([] { make_graph_module(stage_graph(kLinear, {"x"})); }),
            "the graph of the stage has 3 inputs, but there are 1 value, 0 tensors and 0 uses of "
            "shared parameters");
  EXPECT_EQ(message_of([] {
              StageGraph stage = linear_graph();
              stage.tensors[1].tensor.reset();
              make_graph_module(std::move(stage));
            }),
            R"(the tensor "fc.bias" is undefined)");
  EXPECT_EQ(message_of([] {
              make_graph_module(stage_graph("graph(%x : Tensor):\n  return (%x, %x)", {"x"}));
            }),
            "the graph of the stage has 2 outputs; expected one, a tuple if there are several");
  EXPECT_EQ(message_of([] {
              StageGraph stage = stage_graph(kLinear, {"x"});
              stage.shared = linear_graph().tensors;
              make_graph_module(std::move(stage));
            }),
            "a stage with shared parameters needs the claims of its model");
}

}  // namespace
}  // namespace penstock
