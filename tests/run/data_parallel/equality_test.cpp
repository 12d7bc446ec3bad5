#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/data_parallel/replicated_parameters.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/training/gradient_norm.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/replica_training.h"

// The contract that matters: training with several pipelines is training in one process that adds
// up the same gradients in the documented order, to the bit.
namespace penstock {
namespace {

struct EqualityCase {
  std::string schedule;
  Spread spread;
};

void PrintTo(const EqualityCase& shape, std::ostream* out) {
  *out << shape.schedule << " " << to_string(shape.spread);
}

std::vector<EqualityCase> equality_cases() {
  std::vector<EqualityCase> cases;
  for (const ScheduleFamily& family : schedule_families()) {
    if (family.name == "ForwardOnly") continue;
    for (const Spread spread : {Spread::Replicated, Spread::Sharded, Spread::Mixed}) {
      cases.push_back({std::string(family.name), spread});
    }
  }
  return cases;
}

Schedule order_of(const std::string& name, int num_microbatches, int stages_per_rank = 0) {
  const ScheduleFamily& family = schedule_family(name);
  const bool is_fixed = family.num_ranks != ScheduleFamily::kAnyNumber;
  return make_schedule(name, {.num_ranks = is_fixed ? family.num_ranks : 2,
                              .num_microbatches = num_microbatches,
                              .stages_per_rank = stages_per_rank});
}

// Replicas with stages of their own, spread as asked.
std::unique_ptr<PipelineReplicas> make_replicas(const TestModel& model, const Schedule& order,
                                                const ReplicaShape& shape, Spread spread,
                                                ScheduleOptions options = {}) {
  return std::make_unique<PipelineReplicas>(shape.num_replicas, [&](const Replica& replica) {
    const StageList stages = make_stages(model.make(extent_of(order).num_stages));
    spread_stages(stages, spread, {replica.index, replica.count});
    options.num_microbatches = shape.num_microbatches;
    options.data_group = replica.group;
    options.loss = model.loss;
    return std::make_unique<PipelineSchedule>(stages, order, options);
  });
}

std::vector<NamedTensors> gather_all(PipelineReplicas& replicas) {
  std::vector<NamedTensors> all(static_cast<std::size_t>(replicas.num_replicas()));
  replicas.run([&](int replica) {
    all[static_cast<std::size_t>(replica)] = whole_parameters(replicas.replica(replica).stages());
  });
  return all;
}

// Five steps of AdamW; the parameters of each replica.
std::vector<NamedTensors> train_replicas(const TestModel& model, PipelineReplicas& replicas,
                                         const ReplicaShape& shape) {
  std::vector<torch::optim::AdamW> optimizers;
  for (int replica = 0; replica < shape.num_replicas; ++replica) {
    optimizers.push_back(make_adam(replicas.replica(replica).parameters()));
  }
  for (int step = 0; step < 5; ++step) {
    const int rows = rows_of_step(shape, step);
    replicas.step({model.make_inputs(rows)}, {.target = model.make_targets(rows)});
    for (torch::optim::AdamW& optimizer : optimizers) {
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return gather_all(replicas);
}

void expect_same(const NamedTensors& found, const NamedTensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t index = 0; index < found.size(); ++index) {
    EXPECT_EQ(found[index].first, expected[index].first);
    EXPECT_TRUE(torch::equal(found[index].second, expected[index].second))
        << found[index].first << " differs by at most "
        << (found[index].second - expected[index].second).abs().max().item<double>();
  }
}

void expect_like_ruler(const TestModel& model, const Schedule& order, Spread spread,
                       const ReplicaShape& shape, const ScheduleOptions& options = {}) {
  const auto replicas = make_replicas(model, order, shape, spread, options);
  const NamedTensors expected = train_by_ruler(model, order, shape);
  for (const NamedTensors& found : train_replicas(model, *replicas, shape)) {
    expect_same(found, expected);
  }
}

class EveryReplicatedSchedule : public ::testing::TestWithParam<EqualityCase> {};

TEST_P(EveryReplicatedSchedule, TrainsLikeOneProcessInTheDocumentedOrder) {
  const auto& [name, spread] = GetParam();
  const Schedule order = order_of(name, 4);
  // One stage at a time: sharded stages are freed between forward and backward where a rank has
  // several.
  expect_like_ruler(mlp_model(), order, spread,
                    {.num_replicas = 2, .num_microbatches = extent_of(order).num_microbatches},
                    {.max_active_stages = spread == Spread::Sharded ? 1 : 3});
}

INSTANTIATE_TEST_SUITE_P(DataParallel, EveryReplicatedSchedule,
                         ::testing::ValuesIn(equality_cases()), [](const auto& instance) {
                           std::string name = instance.param.schedule;
                           std::erase_if(name,
                                         [](char letter) { return std::isalnum(letter) == 0; });
                           return name + to_string(instance.param.spread);
                         });

TEST(DataParallel, HoldsForOtherModels) {
  const ReplicaShape shape{.num_replicas = 2, .num_microbatches = 3};
  for (const TestModel& model : {gpt_model(), conv_net_model()}) {
    SCOPED_TRACE(model.name);
    expect_like_ruler(model, order_of("ZBVZeroBubble", 3), Spread::Sharded, shape,
                      {.max_active_stages = 1});
    expect_like_ruler(model, order_of("Interleaved1F1B", 3), Spread::Mixed, shape);
  }
}

TEST(DataParallel, HoldsForThreeReplicas) {
  const ReplicaShape shape{.num_replicas = 3, .num_microbatches = 2};
  for (const Spread spread : {Spread::Replicated, Spread::Sharded}) {
    expect_like_ruler(mlp_model(), order_of("InterleavedZeroBubble", 2, 3), spread, shape,
                      {.max_active_stages = 2});
  }
}

TEST(DataParallel, TrainsLikeOnePipelineOnTheJoinedBatch) {
  const TestModel model = mlp_model();
  for (const ScheduleFamily& family : schedule_families()) {
    if (family.name == "ForwardOnly") continue;
    SCOPED_TRACE(std::string(family.name));
    const Schedule order = order_of(std::string(family.name), 4);
    const ReplicaShape shape{.num_replicas = 2,
                             .num_microbatches = extent_of(order).num_microbatches};
    const auto replicas = make_replicas(model, order, shape, Spread::Mixed);
    const StageList stages = make_stages(model.make(extent_of(order).num_stages));
    // Its microbatches are twice as large.
    PipelineSchedule joined(stages, order,
                            {.num_microbatches = shape.num_microbatches, .loss = model.loss});
    std::vector<torch::optim::AdamW> optimizers;  // with a step of 1e-3
    optimizers.emplace_back(replicas->replica(0).parameters());
    optimizers.emplace_back(replicas->replica(1).parameters());
    optimizers.emplace_back(joined.parameters());
    for (int step = 0; step < 5; ++step) {
      const torch::Tensor inputs = model.make_inputs(rows_of_step(shape, 0));
      const torch::Tensor targets = model.make_targets(rows_of_step(shape, 0));
      const StepResult found = replicas->step({inputs}, {.target = targets});
      const StepResult expected = joined.step({inputs}, {.target = targets});
      EXPECT_TRUE(torch::allclose(found.output.toTensor(), expected.output.toTensor(), 1e-5, 1e-5));
      for (torch::optim::AdamW& optimizer : optimizers) {
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    const NamedTensors expected = whole_parameters(stages);
    const NamedTensors found = gather_all(*replicas).front();
    for (std::size_t index = 0; index < expected.size(); ++index) {
      EXPECT_LE((found[index].second - expected[index].second).abs().max().item<double>(), 1e-6)
          << found[index].first;
    }
  }
}

TEST(DataParallel, AddsToGradientsOfEarlierSteps) {
  const TestModel model = mlp_model();
  const ReplicaShape shape{.num_replicas = 2, .num_microbatches = 2};
  const Schedule order = order_of("ZB-H1", 2);
  const Blocks blocks = model.make(2);
  std::vector<StageList> stages;
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    stages.push_back(make_stages(model.make(2)));
    shard_stage(*stages.back()[0], {replica.index, replica.count});
    return std::make_unique<PipelineSchedule>(
        stages.back(), order,
        ScheduleOptions{.num_microbatches = 2, .data_group = replica.group, .loss = model.loss});
  });
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor inputs = model.make_inputs(8 + step);
    const torch::Tensor targets = model.make_targets(8 + step);
    replicas.step({inputs}, {.target = targets});
    accumulate_like_replicas(model, blocks, shape, {0, 1}, inputs, targets);
  }
  for (int replica = 0; replica < 2; ++replica) {
    const StageList& own = stages[static_cast<std::size_t>(replica)];
    expect_equal(gradients_of(own[1]->parameters()), gradients_of(blocks[1]->parameters()),
                 "replicated gradient");
    std::size_t index = 0;
    for (const ParameterSlice& slice : sharded_parameters_of(*own[0])->slices()) {
      const torch::Tensor whole = blocks[0]->parameters()[index++].grad().flatten();
      if (slice.tensor.numel() == 0) continue;
      EXPECT_TRUE(
          torch::equal(slice.tensor.grad(), whole.narrow(0, slice.begin, slice.tensor.numel())))
          << slice.name;
    }
  }
}

TEST(DataParallel, ClipsToTheNormOfOneProcess) {
  const TestModel model = mlp_model();
  const ReplicaShape shape{.num_replicas = 2, .num_microbatches = 2};
  const Schedule order = order_of("Interleaved1F1B", 2);
  const torch::Tensor inputs = model.make_inputs(8);
  const torch::Tensor targets = model.make_targets(8);
  const Blocks blocks = model.make(4);
  accumulate_like_replicas(model, blocks, shape, {0, 1}, inputs, targets);
  const GradientNorm expected = clip_grad_norm(parameters_of(blocks), 1e-3);
  EXPECT_TRUE(expected.is_clipped());
  for (const Spread spread : {Spread::Replicated, Spread::Mixed}) {
    const auto replicas = make_replicas(model, order, shape, spread);
    replicas->step({inputs}, {.target = targets});
    std::vector<double> norms(2);
    replicas->run([&](int replica) {
      norms[static_cast<std::size_t>(replica)] =
          clip_grad_norm(replicas->replica(replica), 1e-3).norm;
    });
    EXPECT_EQ(norms, std::vector<double>(2, expected.norm)) << to_string(spread);
  }
}

TEST(DataParallel, WeighsRowsOverAllReplicas) {
  const TestModel model = mlp_model();
  const Schedule order = order_of("1F1B", 2);
  const torch::Tensor inputs = model.make_inputs(7);
  const torch::Tensor targets = model.make_targets(7);
  const auto replicas = make_replicas(model, order, {.num_replicas = 2, .num_microbatches = 2},
                                      Spread::Replicated, {.loss_weights = LossWeights::ByRows});
  replicas->step({inputs}, {.target = targets});
  const Blocks blocks = model.make(2);
  model.loss(blocks[1]->forward(blocks[0]->forward(inputs)), targets).backward();
  const std::vector<torch::Tensor> found = gradients_of(replicas->replica(1).parameters());
  const std::vector<torch::Tensor> expected = gradients_of(parameters_of(blocks));
  for (std::size_t index = 0; index < found.size(); ++index) {
    EXPECT_TRUE(torch::allclose(found[index], expected[index], 1e-5, 1e-6)) << index;
  }
}

TEST(DataParallel, LeavesSumsOfLossesUnscaled) {
  const auto gradient_with = [](bool scale_grads) {
    std::vector<torch::Tensor> weights;
    PipelineReplicas replicas(2, [&](const Replica& replica) {
      const torch::Tensor weight = torch::full({1}, 1.0, torch::requires_grad());
      weights.push_back(weight);
      const auto module = std::make_shared<torch::nn::Module>();
      module->register_parameter("weight", weight);
      const auto stage = std::make_shared<PipelineStage>(
          make_stage_module([weight](const at::Tensor& input) { return input * weight; },
                            {.module = module}),
          StagePosition{});
      return std::make_unique<PipelineSchedule>(
          StageList{stage}, make_schedule("GPipe", {.num_ranks = 1, .num_microbatches = 2}),
          ScheduleOptions{.num_microbatches = 2,
                          .data_group = replica.group,
                          .loss = [](const at::Tensor& output) { return output.sum(); },
                          .scale_grads = scale_grads});
    });
    replicas.step({torch::ones({8})});
    return weights[1].grad().item<double>();
  };
  EXPECT_EQ(gradient_with(false), 8);
  EXPECT_EQ(gradient_with(true), 2) << "divided by the microbatches of both replicas, once";
}

TEST(DataParallel, DrawsTheNumbersOfOnePipelineWithAllMicrobatches) {
  const auto make_dropout = [] {
    return make_stage_module(
        [](const at::Tensor& input) { return torch::dropout(input, 0.5, true); });
  };
  const auto make_pipeline = [&](int num_microbatches, std::shared_ptr<RankGroup> group) {
    StageList stages;
    for (const int index : {0, 1}) {
      stages.push_back(std::make_shared<PipelineStage>(make_dropout(), StagePosition{index, 2}));
    }
    return std::make_unique<PipelineSchedule>(
        stages, order_of("1F1B", num_microbatches),
        ScheduleOptions{.num_microbatches = num_microbatches, .data_group = std::move(group)});
  };
  PipelineReplicas replicas(
      2, [&](const Replica& replica) { return make_pipeline(2, replica.group); });
  const auto whole = make_pipeline(4, nullptr);
  const StepOptions options{.seed = 5};
  const torch::Tensor inputs = torch::ones({8, 16});
  EXPECT_TRUE(torch::equal(replicas.eval({inputs}, options).output.toTensor(),
                           whole->eval({inputs}, options).output.toTensor()));
}

TEST(DataParallel, EvaluatesShardedStages) {
  const TestModel model = gpt_model();
  const Schedule order = order_of("Interleaved1F1B", 2);
  const auto replicas = make_replicas(model, order, {.num_replicas = 2, .num_microbatches = 2},
                                      Spread::Sharded, {.max_active_stages = 1});
  PipelineSchedule whole(make_stages(model.make(4)), order,
                         {.num_microbatches = 2, .loss = model.loss});
  const torch::Tensor inputs = model.make_inputs(8);
  const auto gradients = [&] { return gradients_of(replicas->replica(0).parameters()); };
  for (int round = 0; round < 2; ++round) {
    const std::vector<torch::Tensor> before = gradients();
    EXPECT_TRUE(torch::allclose(replicas->eval({inputs}).output.toTensor(),
                                whole.eval({inputs}).output.toTensor(), 1e-5, 1e-6));
    for (int replica = 0; replica < 2; ++replica) {
      for (const ParameterBytes& bytes : replicas->replica(replica).parameter_bytes()) {
        EXPECT_EQ(bytes.gathered, 0);
        EXPECT_GT(bytes.peak_gathered, 0);
      }
    }
    expect_equal(gradients(), before, "gradient");
    replicas->step({inputs}, {.target = model.make_targets(8)});
    whole.step({inputs}, {.target = model.make_targets(8)});
    EXPECT_TRUE(gradients().front().defined());
  }
}

}  // namespace
}  // namespace penstock
