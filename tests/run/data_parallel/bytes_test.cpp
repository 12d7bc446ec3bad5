#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/data_parallel/small_stages.h"

// How many bytes sharded stages take.
namespace penstock {
namespace {

std::int64_t bytes_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

// Of parameters, gradients and the state of AdamW.
std::int64_t bytes_of(torch::optim::AdamW& optimizer) {
  std::int64_t bytes = 0;
  for (const torch::Tensor& parameter : optimizer.param_groups()[0].params()) {
    bytes += bytes_of(parameter) + bytes_of(parameter.grad());
  }
  for (const auto& [key, state] : optimizer.state()) {
    const auto& adam = static_cast<const torch::optim::AdamWParamState&>(*state);
    bytes += bytes_of(adam.exp_avg()) + bytes_of(adam.exp_avg_sq());
  }
  return bytes;
}

constexpr std::int64_t kStageBytes = (kWidth * kWidth + kWidth) * 4;

struct Counted {
  std::int64_t resting = 0;  // largest rank
  ParameterBytes bytes;      // of the rank with the most
};

Counted count_bytes(const std::string& schedule, int num_replicas, int max_active_stages) {
  constexpr int kStages = 8;
  const Schedule order =
      make_schedule(schedule, {.num_ranks = 2, .num_microbatches = 4, .stages_per_rank = 4});
  PipelineReplicas replicas(num_replicas, [&](const Replica& replica) {
    const StageList stages = wide_stages(kStages);
    for (const auto& stage : stages) shard_stage(*stage, {replica.index, replica.count});
    return std::make_unique<PipelineSchedule>(
        stages, order,
        ScheduleOptions{.num_microbatches = 4,
                        .data_group = replica.group,
                        .max_active_stages = max_active_stages,
                        .loss = [](const at::Tensor& output) { return output.square().mean(); }});
  });
  Counted counted;
  for (int step = 0; step < 2; ++step) {
    const torch::Tensor inputs = torch::randn({8 * num_replicas, kWidth});
    replicas.step({inputs});
    for (int index = 0; index < num_replicas; ++index) {
      PipelineSchedule& replica = replicas.replica(index);
      torch::optim::AdamW optimizer(replica.parameters());
      optimizer.step();
      counted.resting = std::max(counted.resting, bytes_of(optimizer) / 2);  // two ranks
      for (const ParameterBytes& bytes : replica.parameter_bytes()) {
        if (bytes.peak_gathered >= counted.bytes.peak_gathered) counted.bytes = bytes;
        EXPECT_EQ(bytes.gathered, 0) << "everything is released at the end of a step";
        EXPECT_EQ(bytes.whole_gradients, 0);
        EXPECT_EQ(bytes.slices, 4 * kStageBytes / num_replicas);
        EXPECT_EQ(bytes.slice_gradients, 4 * kStageBytes / num_replicas);
      }
      optimizer.zero_grad();
    }
  }
  return counted;
}

TEST(ShardedBytes, FallWithTheNumberOfReplicas) {
  const std::int64_t alone = count_bytes("Interleaved1F1B", 1, 3).resting;
  EXPECT_EQ(alone, 4 * 4 * kStageBytes) << "parameters, gradients, two moments; four stages";
  EXPECT_EQ(count_bytes("Interleaved1F1B", 2, 3).resting, alone / 2);
  EXPECT_EQ(count_bytes("Interleaved1F1B", 4, 3).resting, alone / 4);
}

TEST(ShardedBytes, OfWholeParametersStayWithinTheActiveStages) {
  for (const char* schedule : {"Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS"}) {
    SCOPED_TRACE(schedule);
    for (const int max_active_stages : {1, 2, 3}) {
      const Counted counted = count_bytes(schedule, 2, max_active_stages);
      EXPECT_EQ(counted.bytes.peak_gathered, max_active_stages * kStageBytes);
      EXPECT_LE(counted.bytes.peak_whole_gradients, 4 * kStageBytes);
    }
  }
}

// What a graph has saved of a parameter is freed with it: the memory is really gone.
TEST(ShardedBytes, AreFreedBelowWhatAutogradHasSaved) {
  const StageList stages = wide_stages(1);
  const auto sharded = shard_stage(*stages[0], {});
  PipelineSchedule pipeline(stages, one_rank(),
                            {.num_microbatches = 1, .loss = [](const at::Tensor& output) {
                               return output.square().mean();
                             }});
  const torch::Tensor weight = stages[0]->module().named_parameters()[0].second;
  EXPECT_EQ(weight.storage().nbytes(), 0);
  EXPECT_EQ(weight.sizes(), torch::IntArrayRef({kWidth, kWidth}));
  pipeline.step({torch::randn({4, kWidth}, torch::requires_grad())});
  EXPECT_EQ(weight.storage().nbytes(), 0);
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_EQ(sharded->slices()[0].tensor.numel(), kWidth * kWidth);
  EXPECT_TRUE(sharded->slices()[0].tensor.grad().defined());
}

}  // namespace
}  // namespace penstock
