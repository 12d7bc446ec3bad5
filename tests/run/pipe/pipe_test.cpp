#include "penstock/run/pipe/pipe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/pipe/pipe_sequential.h"
#include "tests/run/pipe/sources.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/names_of.h"
#include "tests/run/support/whole_models.h"

namespace penstock {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PipeSplit, DoesNothingWhenTheModelRuns) {
  pipe_split();
  const ModuleScope scope("layers.0");
  EXPECT_EQ(call(
                "layers.1", [](int value) { return value + 1; }, 1),
            2);
}

TEST(Pipe, HasNoEmptyStagesWhateverTheMarkers) {
  nn::Linear first(4, 4);
  nn::Linear second(4, 4);
  auto owner = std::make_shared<nn::Module>();
  owner->register_module("first", first);
  owner->register_module("second", second);
  const Pipe pipe = pipeline(source_of(
                                 [&](const auto& inputs) {
                                   pipe_split();
                                   pipe_split();
                                   torch::Tensor hidden = first(inputs[0].toTensor());
                                   pipe_split();
                                   pipe_split();
                                   hidden = second(hidden);
                                   pipe_split();
                                   return hidden;
                                 },
                                 owner),
                             {torch::randn({2, 4})});
  ASSERT_EQ(pipe.num_stages(), 2);
  EXPECT_THAT(names_of(pipe.stage_module(0)->named_parameters()),
              ElementsAre("first.weight", "first.bias"));
  EXPECT_THAT(names_of(pipe.stage_module(1)->named_parameters()),
              ElementsAre("second.weight", "second.bias"));
}

TEST(Pipe, MayBeMadeTwiceOfOneModel) {
  nn::Sequential model = three_layers();
  const torch::Tensor input = torch::randn({2, 4});
  const PipeOptions options{.split_spec = {{"2", SplitPoint::Beginning}}};
  const Pipe first = pipeline(model, {input}, options);
  const Pipe second = pipeline(model, {input}, options);
  const Pipe whole = pipeline(model, {input});
  EXPECT_EQ(first.num_stages(), 2);
  EXPECT_EQ(second.num_stages(), 2);
  EXPECT_EQ(whole.num_stages(), 1);  // nothing is left of the spec
  EXPECT_TRUE(torch::equal(second.forward({input}).toTensor(), model->forward(input)));
}

TEST(Pipe, IsCutBeforeAndAfterModules) {
  nn::Sequential model = three_layers();
  const torch::Tensor input = torch::randn({2, 4});
  const Pipe pipe = pipeline(
      model, {input}, {.split_spec = {{"1", SplitPoint::Beginning}, {"2", SplitPoint::End}}});
  ASSERT_EQ(pipe.num_stages(), 3);
  EXPECT_THAT(names_of(pipe.stage_module(1)->named_parameters()),
              ElementsAre("2.weight", "2.bias"));
  // A cut after a module and one before its successor are one cut.
  const Pipe same = pipeline(
      model, {input}, {.split_spec = {{"1", SplitPoint::End}, {"2", SplitPoint::Beginning}}});
  EXPECT_EQ(same.num_stages(), 2);
}

TEST(Pipe, IsCutAtEveryCallOfAModule) {
  nn::Linear layer(4, 4);
  auto owner = std::make_shared<nn::Module>();
  owner->register_module("layer", layer);
  const auto forward = [&](const std::vector<c10::IValue>& inputs) {
    torch::Tensor hidden = call("layer", layer, inputs[0].toTensor());
    hidden = torch::relu(hidden);
    return call("layer", layer, hidden);
  };
  const torch::Tensor input = torch::randn({2, 4});
  const Pipe pipe =
      pipeline(source_of(forward, owner), {input}, {.split_spec = {{"layer", SplitPoint::End}}});
  ASSERT_EQ(pipe.num_stages(), 2);
  // Under its own name in both stages.
  for (const int stage : {0, 1}) {
    EXPECT_THAT(names_of(pipe.stage_module(stage)->named_parameters()),
                ElementsAre("layer.weight", "layer.bias"));
  }
  EXPECT_THAT(pipe.info().shared_parameters, ElementsAre("layer.bias", "layer.weight"));
  EXPECT_TRUE(torch::equal(pipe.forward({input}).toTensor(), layer(torch::relu(layer(input)))));
}

TEST(Pipe, RunsLikeTheModelAndGradientsFlowThroughAllStages) {
  for (const WholeModel& model : all_whole_models()) {
    SCOPED_TRACE(model.name);
    const auto module = model.make();
    const auto inputs = model.make_inputs(3);
    const auto targets = model.make_targets(3);
    module->eval();
    const c10::IValue expected = module->forward(inputs);
    model.loss(expected, targets).backward();
    std::vector<torch::Tensor> gradients;
    for (torch::Tensor& parameter : module->parameters()) {
      gradients.push_back(parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
    const Pipe pipe = pipeline(trace_source(module), inputs,
                               {.split_spec = {{model.modules[2], SplitPoint::Beginning}}});
    const c10::IValue found = pipe.forward(inputs);
    EXPECT_TRUE(equal_values(found, expected));
    model.loss(found, targets).backward();
    const std::vector<torch::Tensor> parameters = module->parameters();
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      EXPECT_TRUE(torch::equal(parameters[index].grad(), gradients[index])) << index;
    }
  }
}

TEST(Pipe, TakesArgumentsByPositionAndByName) {
  const TraceSource source{.forward = [](const std::vector<c10::IValue>& inputs,
                                         const KeywordArguments& keywords) -> c10::IValue {
    return inputs[0].toTensor() - inputs[1].toTensor() * keywords.at("scale").toTensor();
  }};
  const torch::Tensor one = torch::full({2}, 1.0);
  const torch::Tensor two = torch::full({2}, 2.0);
  const torch::Tensor three = torch::full({2}, 3.0);
  const Pipe pipe =
      pipeline(source, {one, one},
               {.example_kwargs = {{"scale", one}}, .argument_names = {"left", "right"}});
  const torch::Tensor expected = torch::full({2}, 1.0 - 2.0 * 3.0);
  EXPECT_TRUE(torch::equal(pipe.forward({one, two}, {{"scale", three}}).toTensor(), expected));
  EXPECT_TRUE(torch::equal(pipe.forward({one, two, three}).toTensor(), expected));
  EXPECT_TRUE(torch::equal(
      pipe.forward({}, {{"scale", three}, {"right", two}, {"left", one}}).toTensor(), expected));
  EXPECT_THAT(message_of([&] { pipe.forward({one, two}); }), HasSubstr(R"("scale" is missing)"));
}

TEST(Pipe, KeepsOneTensorThatWasTwoExampleInputsApart) {
  const torch::Tensor example = torch::randn({2});
  const Pipe pipe = pipeline(
      source_of([](const auto& inputs) { return inputs[0].toTensor() - inputs[1].toTensor(); }),
      {example, example});
  const torch::Tensor difference =
      pipe.forward({torch::full({2}, 5.0), torch::full({2}, 3.0)}).toTensor();
  EXPECT_TRUE(torch::equal(difference, torch::full({2}, 2.0)));
}

TEST(Pipe, TakesInputsThatNothingUsesAndNestedOnes) {
  const auto forward = [](const std::vector<c10::IValue>& inputs) -> c10::IValue {
    const auto pair = inputs[0].toTupleRef().elements();
    const torch::Tensor first = pair[0].toTensor().relu();
    pipe_split();
    return first + pair[1].toTensor();
  };
  const auto pair = [](double left, double right) {
    return c10::ivalue::Tuple::create(torch::full({2}, left), torch::full({2}, right));
  };
  const Pipe pipe = pipeline(source_of(forward), {pair(1, 2), torch::ones({1})});
  EXPECT_EQ(pipe.num_stages(), 2);
  EXPECT_TRUE(
      torch::equal(pipe.forward({pair(3, 4), torch::ones({1})}).toTensor(), torch::full({2}, 7.0)));
}

TEST(Pipe, ReturnsTheTreeThatTheModelReturns) {
  const auto forward = [](const std::vector<c10::IValue>& inputs) -> c10::IValue {
    const torch::Tensor early = inputs[0].toTensor() + 1;
    pipe_split();
    c10::Dict<std::string, torch::Tensor> dict;
    dict.insert("late", early * 2);
    dict.insert("early", early);
    return c10::ivalue::Tuple::create(dict, c10::List<torch::Tensor>({early.neg()}), 7,
                                      c10::IValue());
  };
  const torch::Tensor input = torch::randn({3});
  const Pipe pipe = pipeline(source_of(forward), {input});
  EXPECT_EQ(pipe.num_stages(), 2);
  EXPECT_TRUE(equal_values(pipe.forward({input}), forward({input})));
}

TEST(Pipe, KeepsGradientsOffWhereTheModelSwitchesThemOff) {
  nn::Linear first(4, 4);
  nn::Linear second(4, 4);
  auto owner = std::make_shared<nn::Module>();
  owner->register_module("first", first);
  owner->register_module("second", second);
  owner->register_buffer("mean", torch::zeros({4}));
  const auto forward = [&](const std::vector<c10::IValue>& inputs) -> c10::IValue {
    const torch::Tensor hidden = first(inputs[0].toTensor());
    torch::Tensor target;
    {
      const torch::NoGradGuard no_grad;
      target = second(hidden);
      torch::Tensor mean = owner->named_buffers()["mean"];
      mean.mul_(0.5).add_(hidden.mean(0));
    }
    pipe_split();
    return second(hidden) * target;
  };
  const torch::Tensor input = torch::randn({2, 4});
  const auto run = [&](const auto& call_model) {
    owner->zero_grad();
    owner->named_buffers()["mean"].zero_();
    call_model().sum().backward();
    std::vector<torch::Tensor> found = {owner->named_buffers()["mean"].clone()};
    for (const torch::Tensor& parameter : owner->parameters())
      found.push_back(parameter.grad().clone());
    return found;
  };
  const auto expected = run([&] { return forward({input}).toTensor(); });
  const Pipe pipe = pipeline(source_of(forward, owner), {input});
  EXPECT_EQ(pipe.num_stages(), 2);
  const auto found = run([&] { return pipe.forward({input}).toTensor(); });
  for (std::size_t index = 0; index < expected.size(); ++index) {
    EXPECT_TRUE(torch::equal(found[index], expected[index])) << index;
  }
}

TEST(Pipe, CopiesWhatALaterStageChangesInPlace) {
  nn::Linear layer(4, 4);
  auto owner = std::make_shared<nn::Module>();
  owner->register_module("layer", layer);
  const auto forward = [&](const std::vector<c10::IValue>& inputs) -> c10::IValue {
    torch::Tensor hidden = layer(inputs[0].toTensor());
    pipe_split();
    hidden.relu_();
    pipe_split();
    return hidden * 2;
  };
  const torch::Tensor input = torch::randn({2, 4});
  const Pipe pipe = pipeline(source_of(forward, owner), {input});
  ASSERT_EQ(pipe.num_stages(), 3);
  EXPECT_TRUE(torch::equal(pipe.forward({input}).toTensor(), forward({input}).toTensor()));
}

TEST(Pipe, LeavesBuffersAndTheRandomGeneratorAlone) {
  nn::Sequential model(nn::Linear(4, 4), nn::BatchNorm1d(4), nn::Dropout(0.5));
  std::vector<torch::Tensor> before;
  for (const torch::Tensor& buffer : model->buffers()) before.push_back(buffer.clone());
  torch::manual_seed(5);
  const torch::Tensor expected = torch::randn({3});
  torch::manual_seed(5);
  const torch::Tensor input = torch::ones({2, 4});
  pipeline(model, {input}, {.split_policy = split_by_time(2)});
  EXPECT_TRUE(torch::equal(torch::randn({3}), expected));
  const std::vector<torch::Tensor> after = model->buffers();
  for (std::size_t index = 0; index < after.size(); ++index) {
    EXPECT_TRUE(torch::equal(after[index], before[index])) << index;
  }
  for (const torch::Tensor& parameter : model->parameters())
    EXPECT_FALSE(parameter.grad().defined());
}

TEST(Pipe, KeepsNamesAndTensorsOfTheModel) {
  const WholeModel model = whole_conv_net();
  const auto module = model.make();
  module->register_parameter("unused", torch::ones({2}));
  const Pipe pipe = pipeline(trace_source(module), model.make_inputs(2),
                             {.split_policy = split_by_parameters(3)});
  const auto parameters = pipe.named_parameters();
  ASSERT_EQ(parameters.size(), module->named_parameters().size());
  for (const auto& [name, tensor] : parameters) {
    EXPECT_TRUE(tensor.is_same(module->named_parameters()[name])) << name;
  }
  const auto buffers = pipe.named_buffers();
  ASSERT_EQ(buffers.size(), module->named_buffers().size());
  for (const auto& [name, tensor] : buffers) {
    EXPECT_TRUE(tensor.is_same(module->named_buffers()[name])) << name;
  }
  EXPECT_EQ(pipe.parameters().size(), parameters.size());
}

TEST(Pipe, LeavesAStageOnlyItsOwnTensors) {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> first;
  std::shared_ptr<PipelineStage> stage;
  {
    nn::Sequential model = three_layers();
    for (const torch::Tensor& parameter : model[0]->parameters()) {
      first.emplace_back(parameter.getIntrusivePtr());
    }
    const Pipe pipe =
        pipeline(model, {torch::randn({2, 4})}, {.split_spec = {{"2", SplitPoint::Beginning}}});
    stage = pipe.build_stage(1);
  }
  for (const auto& parameter : first) EXPECT_TRUE(parameter.expired());
  EXPECT_EQ(stage->parameters().size(), 4U);
}

TEST(Pipe, PrintsWhatItIsMadeOf) {
  const std::string text = to_string(pipeline(three_layers(), {torch::randn({2, 4})},
                                              {.split_spec = {{"2", SplitPoint::Beginning}}}));
  EXPECT_THAT(text, HasSubstr("pipe of 2 stages\n"));
  EXPECT_THAT(text,
              HasSubstr("stage 0\n  in: input0\n  parameters (80 bytes): 0.weight, 0.bias\n"));
  EXPECT_THAT(text, HasSubstr("aten::relu"));
  EXPECT_THAT(text, HasSubstr("stage 1\n"));
}

TEST(PolicyReport, IsATableOfStages) {
  const auto report = std::make_shared<PolicyReport>();
  pipeline(three_layers(), {torch::randn({2, 4})}, {.split_policy = split_by_time(2, report)});
  const std::string text = to_string(*report);
  EXPECT_THAT(text,
              HasSubstr("stage   forward ms  backward ms    share          bytes  modules\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(report->stages.size(), 2U);
  for (const LayerCost& piece : report->pieces) EXPECT_GT(piece.forward.count(), 0) << piece.name;
}

TEST(SplitByCosts, BalancesWhatItIsTold) {
  const auto report = std::make_shared<PolicyReport>();
  const auto split = [&](const SplitPolicy& policy) {
    pipeline(three_layers(), {torch::randn({2, 4})}, {.split_policy = policy});
  };
  split(split_by_parameters(2, report));
  std::vector<LayerCost> pieces = report->pieces;
  ASSERT_GT(pieces.size(), 2U);
  for (LayerCost& piece : pieces) piece.forward = Duration(1);
  pieces.back().forward = Duration(1000);
  split(split_by_costs(2, pieces, report));
  EXPECT_EQ(report->stages.back().first_layer, static_cast<int>(pieces.size()) - 1);
  pieces.pop_back();
  EXPECT_EQ(message_of([&] { split(split_by_costs(2, pieces)); }),
            fmt::format("the model has {} pieces, but there are costs of {}", pieces.size() + 1,
                        pieces.size()));
}

TEST(PipeSequential, MakesAStageOfEachModule) {
  nn::Sequential model = three_layers();
  const Pipe pipe = pipe_sequential(model);
  ASSERT_EQ(pipe.num_stages(), 4);
  EXPECT_THAT(names_of(pipe.stage_module(2)->named_parameters()),
              ElementsAre("2.weight", "2.bias"));
  EXPECT_TRUE(pipe.stage_module(1)->named_parameters().empty());
  const torch::Tensor input = torch::randn({2, 4});
  EXPECT_TRUE(torch::equal(pipe.forward({input}).toTensor(), model->forward(input)));
}

TEST(PipeSequential, PutsNeighboursTogether) {
  const Pipe pipe = pipe_sequential(three_layers(), {.num_stages = 2});
  ASSERT_EQ(pipe.num_stages(), 2);
  EXPECT_EQ(pipe.named_parameters().size(), 6U);
  EXPECT_EQ(message_of([] { pipe_sequential(three_layers(), {.num_stages = 5}); }),
            "5 stages cannot be made of 4 modules");
}

TEST(PipeSequential, TakesAListOfModules) {
  const Pipe pipe = pipe_sequential(
      std::vector<nn::AnyModule>{nn::AnyModule(nn::Linear(2, 3)), nn::AnyModule(nn::Linear(3, 1))});
  EXPECT_EQ(pipe.forward({torch::randn({5, 2})}).toTensor().size(1), 1);
}

}  // namespace
}  // namespace penstock
