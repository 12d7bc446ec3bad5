#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/world/group.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"
#include "tests/run/support/replica_training.h"

// A mesh of processes: two pipelines of two ranks each.
namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr ReplicaShape kMeshShape{.num_replicas = 2, .num_microbatches = 4};

std::string lines_of(const std::string& name, const NamedTensors& parameters) {
  std::string lines;
  for (const auto& [parameter, tensor] : parameters) {
    lines += fmt::format("{} {} {:016x}\n", name, parameter, fingerprint(tensor));
  }
  return lines;
}

// The two groups of a process.
struct MeshGroups {
  MeshGroups(World& world, TransportKind transport)
      : mesh(world.size(), {.pipeline = 2, .data = 2}),
        pipeline(std::make_shared<ProcessRanks>(
            world,
            ProcessRankOptions{.group = mesh.pipeline_of(world.rank()), .transport = transport})),
        data(std::make_shared<ProcessRanks>(
            world, ProcessRankOptions{.group = mesh.data_group_of(world.rank()),
                                      .transport = transport})) {}

  Mesh mesh;
  std::shared_ptr<ProcessRanks> pipeline;
  std::shared_ptr<ProcessRanks> data;
};

// Trains the stages of this process; the part of replica `replica` of the joined batch.
std::string train_in_mesh(const std::string& name, Spread spread, const MeshGroups& groups,
                          const std::function<void(int step)>& before_step = {}) {
  const TestModel model = mlp_model();
  const int replica = groups.data->local_ranks().front();
  const Schedule order = make_schedule(name, {.num_ranks = 2, .num_microbatches = 4});
  const int num_stages = extent_of(order).num_stages;
  const Placement placement = placement_of(order, num_stages);
  StageList local;
  for (const auto& stage : make_stages(model.make(num_stages))) {
    if (placement.rank_of(stage->index()) == groups.pipeline->local_ranks().front()) {
      local.push_back(stage);
    }
  }
  spread_stages(local, spread, {replica, kMeshShape.num_replicas});
  PipelineSchedule pipeline(local, order,
                            {.num_microbatches = kMeshShape.num_microbatches,
                             .group = groups.pipeline,
                             .data_group = groups.data,
                             .max_active_stages = 1,
                             .loss = model.loss});
  torch::optim::AdamW optimizer = make_adam(pipeline.parameters());
  for (int step = 0; step < 5; ++step) {
    if (before_step) before_step(step);
    const int rows = rows_of_step(kMeshShape, step);
    const int count = kMeshShape.num_replicas * kMeshShape.num_microbatches;
    const auto input_parts = torch::tensor_split(model.make_inputs(rows), count);
    const auto target_parts = torch::tensor_split(model.make_targets(rows), count);
    PresplitBatch batch;
    for (int microbatch = 0; microbatch < kMeshShape.num_microbatches; ++microbatch) {
      const auto index =
          static_cast<std::size_t>(replica * kMeshShape.num_microbatches + microbatch);
      batch.inputs.push_back({.args = {input_parts[index]}});
      batch.targets.emplace_back(target_parts[index]);
    }
    pipeline.step(batch);
    optimizer.step();
    optimizer.zero_grad();
  }
  return lines_of(fmt::format("{} replica {}", name, replica), whole_parameters(local));
}

class OverMeshes : public ::testing::TestWithParam<TransportKind> {};

TEST_P(OverMeshes, TrainLikeOneProcessInTheDocumentedOrder) {
  const std::vector<std::pair<std::string, Spread>> cases = {{"1F1B", Spread::Replicated},
                                                             {"1F1B", Spread::Sharded},
                                                             {"ZBVZeroBubble", Spread::Sharded},
                                                             {"ZBVZeroBubble", Spread::Mixed},
                                                             {"Interleaved1F1B", Spread::Mixed}};
  const std::vector<RankEnd> ends = run_forked(4, [&](const WorldOptions& options) {
    World world(options);
    const MeshGroups groups(world, GetParam());
    std::string lines;
    for (const auto& [name, spread] : cases) lines += train_in_mesh(name, spread, groups);
    return lines;
  });
  std::string lines;
  for (const RankEnd& end : ends) {
    ASSERT_TRUE(end.has_returned) << end.text << " (signal " << end.signal << ")";
    lines += end.text;
  }
  const std::string expected = run_apart([&] {
    std::string all;
    for (const auto& [name, spread] : cases) {
      const NamedTensors parameters = train_by_ruler(
          mlp_model(), make_schedule(name, {.num_ranks = 2, .num_microbatches = 4}), kMeshShape);
      for (const int replica : {0, 1}) {
        all += lines_of(fmt::format("{} replica {}", name, replica), parameters);
      }
    }
    return all;
  });
  EXPECT_GT(sorted_lines(expected).size(), 50U);
  EXPECT_EQ(sorted_lines(lines), sorted_lines(expected));
}

INSTANTIATE_TEST_SUITE_P(Processes, OverMeshes,
                         ::testing::Values(TransportKind::SharedMemory, TransportKind::Gloo),
                         [](const auto& instance) {
                           return instance.param == TransportKind::Gloo ? "Gloo" : "SharedMemory";
                         });

TEST_P(OverMeshes, LearnOfADeathInAnotherPipeline) {
  const std::vector<RankEnd> ends = run_forked(4, [&](const WorldOptions& options) {
    World world(options);
    const MeshGroups groups(world, GetParam());
    return train_in_mesh("1F1B", Spread::Mixed, groups, [&](int step) {
      if (step == 2 && world.rank() == 3) kill(getpid(), SIGKILL);
    });
  });
  EXPECT_EQ(ends[3].signal, SIGKILL);
  for (const int rank : {0, 1, 2}) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(end.has_thrown) << rank << ": " << end.text;
    EXPECT_THAT(end.text, HasSubstr("rank 3 (pid")) << rank;
  }
}

TEST(Mesh, RefusesReplicasWithOtherParameters) {
  const std::vector<RankEnd> ends = run_forked(2, [&](const WorldOptions& options) {
    World world(options);
    const auto data = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const TestModel model = mlp_model();
    const Blocks blocks = model.make(1);
    if (world.rank() == 1) {
      const torch::NoGradGuard no_grad;
      blocks[0]->parameters()[1].add_(1);
    }
    PipelineSchedule pipeline(make_stages(blocks),
                              make_schedule("GPipe", {.num_ranks = 1, .num_microbatches = 1}),
                              {.num_microbatches = 1, .data_group = data, .loss = model.loss});
    pipeline.step({model.make_inputs(2)}, {.target = model.make_targets(2)});
    return std::string("trained");
  });
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.has_thrown) << end.text;
    EXPECT_THAT(end.text,
                HasSubstr("the parameter \"linear.bias\" of stage 0 differs, in its values"));
  }
}

}  // namespace
}  // namespace penstock
