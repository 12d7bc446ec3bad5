#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/random/random_scope.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/baseline.h"

// Random numbers depend on step, microbatch and place in the model, and on nothing else.
namespace penstock {
namespace {

constexpr int kMicrobatches = 8;

class DropoutBlock final : public Block {
 public:
  DropoutBlock() : linear_(register_module("linear", torch::nn::Linear(16, 16))) {}
  torch::Tensor forward(torch::Tensor input) override {
    return torch::dropout(linear_(torch::dropout(input, 0.3, true)), 0.5, true);
  }

 private:
  torch::nn::Linear linear_;
};

Blocks make_blocks(int num_stages) {
  torch::manual_seed(3);
  Blocks blocks;
  for (int stage = 0; stage < num_stages; ++stage)
    blocks.push_back(std::make_shared<DropoutBlock>());
  return blocks;
}

torch::Tensor squares(const torch::Tensor& output) {
  return output.square().mean();
}

struct Trained {
  std::vector<torch::Tensor> outputs;  // by step
  std::vector<torch::Tensor> gradients;
};

Trained train(const std::string& schedule, int num_ranks, int num_stages) {
  const Blocks blocks = make_blocks(num_stages);
  PipelineSchedule pipeline(make_stages(blocks),
                            make_schedule(schedule, {.num_ranks = num_ranks,
                                                     .num_microbatches = kMicrobatches,
                                                     .stages_per_rank = num_stages / num_ranks}),
                            {.num_microbatches = kMicrobatches, .loss = squares});
  torch::manual_seed(17);
  const torch::Tensor inputs = torch::ones({2 * kMicrobatches, 16});
  Trained trained;
  for (int step = 0; step < 2; ++step) {
    trained.outputs.push_back(pipeline.step({inputs}).output.toTensor());
  }
  trained.gradients = gradients_of(parameters_of(blocks));
  return trained;
}

Trained train_without_pipeline(int num_stages) {
  const Blocks blocks = make_blocks(num_stages);
  torch::manual_seed(17);
  const torch::Tensor inputs = torch::ones({2 * kMicrobatches, 16});
  Trained trained;
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::vector<torch::Tensor> outputs;
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      torch::Tensor hidden = inputs.slice(0, 2 * microbatch, 2 * microbatch + 2);
      for (int stage = 0; stage < num_stages; ++stage) {
        const RandomScope scope(
            {.step_seed = step_seed(step), .microbatch = microbatch, .stage = stage});
        hidden = blocks[static_cast<std::size_t>(stage)]->forward(hidden);
      }
      const torch::Tensor loss = squares(hidden);
      loss.backward(torch::full_like(loss, 1.0 / kMicrobatches));
      outputs.push_back(hidden.detach());
    }
    trained.outputs.push_back(torch::cat(outputs));
  }
  trained.gradients = gradients_of(parameters_of(blocks));
  return trained;
}

void expect_same(const Trained& found, const Trained& expected) {
  expect_equal(found.outputs, expected.outputs, "output");
  expect_equal(found.gradients, expected.gradients, "gradient");
}

TEST(RandomNumbers, OfStagesByHandDoNotDependOnTheSchedule) {
  for (const int num_stages : {1, 2, 3, 4}) {
    SCOPED_TRACE(num_stages);
    const Trained expected = train_without_pipeline(num_stages);
    EXPECT_FALSE(torch::equal(expected.outputs[0], expected.outputs[1])) << "steps differ";
    for (const char* schedule : {"1F1B", "GPipe", "ZB-H1"}) {
      SCOPED_TRACE(schedule);
      expect_same(train(schedule, num_stages, num_stages), expected);
    }
  }
  const Trained expected = train_without_pipeline(4);
  for (const char* schedule : {"ZBVZeroBubble", "DualPipeV", "Interleaved1F1B"}) {
    SCOPED_TRACE(schedule);
    expect_same(train(schedule, 2, 4), expected);
  }
}

TEST(RandomNumbers, DoNotDependOnTiming) {
  const Trained expected = train_without_pipeline(4);
  for (int repetition = 0; repetition < 20; ++repetition) {
    SCOPED_TRACE(repetition);
    expect_same(train("1F1B", 4, 4), expected);
    expect_same(train("GPipe", 4, 4), expected);
    expect_same(train("ZBVZeroBubble", 2, 4), expected);
  }
}

TEST(RandomNumbers, FollowTheSeedOfAStep) {
  const Blocks blocks = make_blocks(2);
  Schedule1F1B pipeline(make_stages(blocks), {.num_microbatches = 2, .loss = squares});
  const torch::Tensor inputs = torch::ones({4, 16});
  const auto output = [&](const StepOptions& options) {
    return pipeline.step({inputs}, options).output.toTensor();
  };
  const torch::Tensor first = output({.seed = 5});
  EXPECT_TRUE(torch::equal(output({.seed = 5}), first));
  EXPECT_FALSE(torch::equal(output({.seed = 6}), first));
  EXPECT_FALSE(torch::equal(first.slice(0, 0, 2), first.slice(0, 2, 4))) << "microbatches differ";
}

TEST(RandomNumbers, OfEvaluationsDoNotChangeThoseOfSteps) {
  const auto outputs = [](bool evaluates) {
    const Blocks blocks = make_blocks(2);
    Schedule1F1B pipeline(make_stages(blocks), {.num_microbatches = 2, .loss = squares});
    torch::manual_seed(1);
    const torch::Tensor inputs = torch::ones({4, 16});
    std::vector<torch::Tensor> list;
    for (int step = 0; step < 2; ++step) {
      if (evaluates) pipeline.eval({inputs});
      list.push_back(pipeline.step({inputs}).output.toTensor());
    }
    return list;
  };
  expect_equal(outputs(true), outputs(false), "output");
}

TEST(RandomNumbers, OfALossDependOnTheMicrobatchOnly) {
  const auto losses = [](const char* schedule) {
    const Blocks blocks = make_blocks(2);
    BuiltInSchedule pipeline(schedule, make_stages(blocks),
                             {.num_microbatches = 4, .loss = [](const torch::Tensor& output) {
                                return (output * torch::rand_like(output)).mean();
                              }});
    return pipeline.step({torch::ones({8, 16})}, {.seed = 1}).losses;
  };
  expect_equal(losses("1F1B"), losses("GPipe"), "loss");
}

// Four dropouts in a row, in as many stages as there are cuts.
StageList dropout_stages(int num_stages) {
  StageList stages;
  const int per_stage = 4 / num_stages;
  for (int index = 0; index < num_stages; ++index) {
    std::string text = "graph(%h0 : Tensor):\n";
    text += "  %p : float = prim::Constant[value=0.3]()\n";
    text += "  %on : bool = prim::Constant[value=1]()\n";
    for (int i = 0; i < per_stage; ++i) {
      text += "  %h" + std::to_string(i + 1) + " : Tensor = aten::dropout(%h" + std::to_string(i) +
              ", %p, %on)\n";
    }
    text += "  return (%h" + std::to_string(per_stage) + ")\n";
    StageGraph stage = stage_graph(text, {"h"});
    std::uint64_t site = static_cast<std::uint64_t>(index * per_stage);
    for (const torch::jit::Node* node : stage.graph->nodes()) {
      if (node->kind() == c10::Symbol::fromQualString("aten::dropout")) {
        stage.random_sites[node] = site++;
      }
    }
    stages.push_back(
        std::make_shared<PipelineStage>(make_graph_module(std::move(stage)),
                                        StagePosition{.index = index, .num_stages = num_stages}));
  }
  return stages;
}

TEST(RandomNumbers, OfGraphsDoNotDependOnTheCut) {
  const torch::Tensor inputs = torch::ones({4, 64});
  std::vector<torch::Tensor> expected;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const RandomScope scope({.step_seed = 9, .microbatch = microbatch}, RandomStream::PerDraw);
    torch::Tensor hidden = inputs.slice(0, 2 * microbatch, 2 * microbatch + 2);
    for (int layer = 0; layer < 4; ++layer) hidden = torch::dropout(hidden, 0.3, true);
    expected.push_back(hidden);
  }
  for (const int num_stages : {1, 2, 4}) {
    SCOPED_TRACE(num_stages);
    ScheduleGPipe pipeline(dropout_stages(num_stages), {.num_microbatches = 2});
    expect_equal({pipeline.eval({inputs}, {.seed = 9}).output.toTensor()}, {torch::cat(expected)},
                 "output");
  }
}

}  // namespace
}  // namespace penstock
