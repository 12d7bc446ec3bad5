#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/run/data_parallel/replicated_parameters.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/shared_claims.h"
#include "tests/run/data_parallel/small_stages.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- which gradients there are ----

TEST(ReplicatedGradients, CountAsZeroWhereAReplicaHasNone) {
  for (const bool is_sharded : {false, true}) {
    SCOPED_TRACE(is_sharded);
    std::vector<Parameters> parameters;
    std::vector<std::shared_ptr<PipelineStage>> stages;
    PipelineReplicas replicas(2, [&](const Replica& replica) {
      const torch::Tensor tied = trained(2);
      Parameters own = {{"always", trained(1)}, {"sometimes", trained(1)},
                        {"never", trained(1)},  {"frozen", torch::ones({})},
                        {"tied", tied},         {"tied_again", tied}};
      parameters.push_back(own);
      const auto stage = stage_with(own, [own](torch::Tensor input) {
        torch::Tensor output = input * own[0].second * own[3].second;
        if (input.sum().item<double>() > 10) output = output + input * own[1].second;
        return output + own[4].second * own[5].second;
      });
      if (is_sharded) shard_stage(*stage, {replica.index, replica.count});
      stages.push_back(stage);
      return std::make_unique<PipelineSchedule>(StageList{stage}, one_rank(), sum_options(replica));
    });
    replicas.step({torch::tensor({1.0F, 2.0F, 10.0F, 20.0F})});
    for (int replica = 0; replica < 2; ++replica) {
      std::vector<std::pair<std::string, torch::Tensor>> found;
      if (is_sharded) {
        for (const ParameterSlice& slice :
             sharded_parameters_of(*stages[static_cast<std::size_t>(replica)])->slices()) {
          if (slice.tensor.numel() > 0) found.emplace_back(slice.name, slice.tensor.grad());
        }
        EXPECT_GE(found.size(), 2U) << "each replica has some of them";
        EXPECT_LE(found.size(), 3U);
      } else {
        for (const auto& [name, tensor] : parameters[static_cast<std::size_t>(replica)]) {
          found.emplace_back(name, tensor.grad());
        }
      }
      for (const auto& [name, gradient] : found) {
        SCOPED_TRACE(name);
        if (name == "never" || name == "frozen") {
          EXPECT_FALSE(gradient.defined());
          continue;
        }
        ASSERT_TRUE(gradient.defined());
        EXPECT_EQ(gradient.item<double>(), name == "always" ? 33 : name == "sometimes" ? 30 : 16);
      }
    }
  }
}

TEST(ReplicatedGradients, OfParametersThatSeveralStagesUse) {
  std::vector<torch::Tensor> tables;
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    const torch::Tensor table = torch::full({2}, 3.0, torch::requires_grad());
    tables.push_back(table);
    const auto claims = std::make_shared<SharedClaims>();
    StageList stages;
    for (const int index : {0, 1}) {
      StageGraph graph = stage_graph(R"(
graph(%x : Tensor, %table : Tensor):
  %y : Tensor = aten::mul(%x, %table)
  return (%y)
)",
                                     {"x"});
      graph.shared = {{"table", table}};
      graph.claims = claims;
      stages.push_back(std::make_shared<PipelineStage>(make_graph_module(std::move(graph)),
                                                       StagePosition{index, 2}));
      EXPECT_EQ(message_of([&] {
                  shard_stage(*stages.back(), {0, 2});
                }),
                "stage " + std::to_string(index) +
                    " uses the parameter \"table\" together with other stages, and cannot be "
                    "sharded; replicate it");
    }
    return std::make_unique<PipelineSchedule>(
        stages, make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 1}),
        sum_options(replica));
  });
  for (int step = 1; step <= 2; ++step) {
    replicas.step({torch::tensor({{1.0F, 2.0F}, {10.0F, 20.0F}})});
    for (const torch::Tensor& table : tables) {  // d(x t^2) = 2 x t
      EXPECT_TRUE(torch::equal(table.grad(), step * torch::tensor({66.0F, 132.0F})));
    }
  }
}

// ---- whole tensors of sharded stages ----

TEST(ShardedParameters, AreGatheredAndLoadedByName) {
  std::vector<std::shared_ptr<PipelineStage>> stages;
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    stages.push_back(wide_stages(1)[0]);
    shard_stage(*stages.back(), {replica.index, replica.count}, {.bucket_bytes = 1000});
    return std::make_unique<PipelineSchedule>(StageList{stages.back()}, one_rank(),
                                              sum_options(replica));
  });
  NamedTensors expected;
  for (const auto& [name, tensor] : wide_stages(1)[0]->module().named_parameters()) {
    expected.emplace_back(name, tensor.detach().clone());
  }
  const auto check = [&](const NamedTensors& whole) {
    std::vector<NamedTensors> found(2);
    replicas.run([&](int replica) {
      const auto index = static_cast<std::size_t>(replica);
      found[index] = sharded_parameters_of(*stages[index])->gather_parameters();
    });
    for (const NamedTensors& own : found) {
      ASSERT_EQ(own.size(), 2);
      for (std::size_t index = 0; index < own.size(); ++index) {
        EXPECT_EQ(own[index].first, whole[index].first);
        EXPECT_TRUE(torch::equal(own[index].second, whole[index].second)) << own[index].first;
      }
    }
  };
  check(expected);
  for (auto& [name, tensor] : expected) tensor = torch::randn(tensor.sizes());
  for (const auto& stage : stages) sharded_parameters_of(*stage)->load_parameters(expected);
  check(expected);
  // What an optimizer keeps, here of the first parameter only.
  std::vector<NamedTensors> state(2);
  replicas.run([&](int replica) {
    const auto index = static_cast<std::size_t>(replica);
    ShardedParameters& sharded = *sharded_parameters_of(*stages[index]);
    std::vector<torch::Tensor> parts = sharded.cut(expected);
    parts[1] = torch::Tensor();
    state[index] = sharded.gather(parts, "moments");
  });
  EXPECT_TRUE(torch::equal(state[0][0].second, expected[0].second));
  EXPECT_TRUE(torch::equal(state[1][0].second, expected[0].second));
  EXPECT_FALSE(state[1][1].second.defined());

  ShardedParameters& sharded = *sharded_parameters_of(*stages[0]);
  EXPECT_EQ(message_of([&] { sharded.load_parameters({expected[0]}); }),
            "there is no tensor for the parameter \"0.bias\" of stage 0");
  EXPECT_THAT(message_of([&] {
                sharded.load_parameters({expected[0], {"0.bias", torch::ones({3})}});
              }),
              StartsWith("the tensor for the parameter \"0.bias\" of stage 0 is "));
}

TEST(ShardedParameters, KeepTheOrderOfElementsOfAnyLayout) {
  const torch::Tensor values = torch::randn({4, 3, 2, 2});
  const torch::Tensor weight =
      values.contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_(true);
  const auto stage = stage_with({{"weight", weight}}, [weight](const torch::Tensor& input) {
    return torch::conv2d(input, weight);
  });
  const torch::Tensor inputs = torch::randn({2, 3, 5, 5});
  const torch::Tensor expected = torch::conv2d(inputs, values);
  const auto sharded = shard_stage(*stage, {});
  PipelineSchedule pipeline({stage}, one_rank(), {.num_microbatches = 1});
  EXPECT_TRUE(torch::allclose(pipeline.eval({inputs}).output.toTensor(), expected, 1e-5, 1e-5));
  EXPECT_TRUE(torch::equal(sharded->gather_parameters()[0].second, values));
}

TEST(ShardedParameters, RefuseWhatCannotBeSharded) {
  const auto identity = [](torch::Tensor input) { return input; };
  const torch::Tensor whole = torch::ones({4}, torch::requires_grad());
  const torch::Tensor part = whole.detach().narrow(0, 0, 2).requires_grad_(true);
  EXPECT_EQ(message_of([&] {
              shard_stage(*stage_with({{"a", whole}, {"b", part}}, identity, {3, 4}), {});
            }),
            "the parameters \"a\" and \"b\" of stage 3 share memory and cannot be sharded; "
            "replicate the stage, or make them one tensor");
  whole.mutable_grad() = torch::ones({4});
  EXPECT_EQ(message_of([&] {
              shard_stage(*stage_with({{"a", whole}}, identity), {});
            }),
            "the parameter \"a\" of stage 0 has a gradient already; shard the stage before it is "
            "trained, or clear the gradient");
  EXPECT_EQ(message_of([&] {
              shard_stage(*stage_with({}, identity), {2, 2});
            }),
            "replica 2 is not one of 2 replicas; replicas are numbered from 0");
  EXPECT_EQ(message_of([&] { shard_stage(*stage_with({}, identity), {}, {.bucket_bytes = 0}); }),
            "a bucket needs room for at least one byte, not 0");
  const auto stage = stage_with({}, identity);
  shard_stage(*stage, {1, 2});
  EXPECT_EQ(message_of([&] { replicate_stage(*stage); }), "stage 0 is sharded already");
  EXPECT_EQ(message_of([&] { PipelineSchedule({stage}, one_rank(), {}); }),
            "stage 0 was sharded for replica 1 of 2, but the pipeline is replica 0 of 1; it needs "
            "ScheduleOptions::data_group with the same numbers");
  EXPECT_THAT(message_of([&] { sharded_parameters_of(*stage)->gather_parameters(); }),
              HasSubstr("is not part of a pipeline"));
}

// ---- programs that do not gather or reduce ----

TEST(ParameterActions, MustGatherBeforeUse) {
  const StageList stages = wide_stages(2);
  shard_stage(*stages[1], {});
  const Schedule order = make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 1});
  PipelineSchedule pipeline(stages, lower(order, {.sharding = false}), {.num_microbatches = 1});
  EXPECT_THAT(message_of([&] {
                pipeline.eval({torch::ones({1, kWidth})});
              }),
              "nothing was thrown")
      << "the program of eval() is lowered by the pipeline";
  PipelineSchedule trainer(
      stages, lower(order, {.sharding = false}),
      {.num_microbatches = 1, .loss = [](const at::Tensor& output) { return output.sum(); }});
  EXPECT_THAT(message_of([&] {
                trainer.step({torch::ones({1, kWidth})});
              }),
              AllOf(StartsWith("rank 1, step "),
                    HasSubstr("(1F0): the parameters of stage 1, which is sharded, are not "
                              "gathered; the program needs an UNSHARD")));
}

TEST(ParameterActions, MustReduceBeforeTheStepEnds) {
  const StageList stages = wide_stages(2);
  shard_stage(*stages[1], {});
  ScheduleOptions options{.num_microbatches = 2,
                          .loss = [](const at::Tensor& output) { return output.sum(); }};
  options.custom_functions[ActionKind::ReduceGrad] = [](ActionContext&) {};
  Schedule1F1B pipeline(stages, options);
  const std::string problem =
      "the gradients of stage 1 are not final: its REDUCE_GRAD has not run in this step";
  EXPECT_THAT(message_of([&] { pipeline.step({torch::ones({2, kWidth})}); }), HasSubstr(problem));
  EXPECT_EQ(message_of([&] { stages[1]->require_final_gradients(); }),
            "the gradients of stage 1 are not final: the last step failed before they were");
  for (const torch::Tensor& slice : stages[1]->parameters()) EXPECT_FALSE(slice.grad().defined());
}

TEST(ParameterActions, GiveFinalGradientsOnlyAfterReduction) {
  std::vector<std::string> messages;
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    ScheduleOptions options = sum_options(replica);
    if (replica.index == 0) {
      options.custom_functions[ActionKind::ReduceGrad] = [&](ActionContext& context) {
        messages.push_back(message_of([&] { context.stage().require_final_gradients(); }));
        context.run();
        messages.push_back(message_of([&] { context.stage().require_final_gradients(); }));
        messages.push_back(message_of([&] { context.stage().reduce_gradients(); }));
      };
    }
    return std::make_unique<PipelineSchedule>(wide_stages(1), one_rank(), options);
  });
  replicas.step({torch::ones({2, kWidth})});
  replicas.replica(0).stages()[0]->require_final_gradients();
  EXPECT_EQ(
      messages,
      (std::vector<std::string>{
          "the gradients of stage 0 are not final: its REDUCE_GRAD has not run in this step",
          "the gradients of stage 0 are not final: those of other replicas are on their way "
          "until the list of the rank ends",
          "the gradients of stage 0 are reduced already; there is one REDUCE_GRAD per step"}));
}

}  // namespace
}  // namespace penstock
