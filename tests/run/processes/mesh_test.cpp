#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/training/staggered_trainer.h"
#include "penstock/run/world/group.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"
#include "tests/run/support/replica_training.h"

// A mesh of processes: two pipelines of two ranks each.
namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int kMeshRanks = 2;
constexpr int kMeshReplicas = 2;

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
      : mesh(world.size(), {.pipeline = kMeshRanks, .data = kMeshReplicas}),
        pipeline(std::make_shared<ProcessRanks>(
            world,
            ProcessRankOptions{.group = mesh.pipeline_of(world.rank()), .transport = transport})),
        data(std::make_shared<ProcessRanks>(
            world, ProcessRankOptions{.group = mesh.data_group_of(world.rank()),
                                      .transport = transport})) {}

  // Replicas that are processes, each with all its ranks as threads.
  explicit MeshGroups(World& world)
      : mesh(world.size(), {.data = kMeshReplicas}),
        data(std::make_shared<ProcessRanks>(world, ProcessRankOptions{})) {}

  bool has(int rank) const {
    return pipeline == nullptr || pipeline->local_ranks().front() == rank;
  }
  int replica() const { return data->local_ranks().front(); }

  Mesh mesh;
  std::shared_ptr<ProcessRanks> pipeline;
  std::shared_ptr<ProcessRanks> data;
};

struct MeshCase {
  std::string schedule;
  Spread spread = Spread::Replicated;
};

std::string name_of(const MeshCase& shape, int replica) {
  return fmt::format("{} {} replica {}", shape.schedule, to_string(shape.spread), replica);
}

Schedule order_of(const MeshCase& shape) {
  return make_schedule(shape.schedule, {.num_ranks = kMeshRanks, .num_microbatches = 4});
}

ReplicaShape shape_of(const Schedule& order) {
  return {.num_replicas = kMeshReplicas, .num_microbatches = extent_of(order).num_microbatches};
}

// The stages of this process in a pipeline that has replicas, and its part of each batch.
class MeshPipeline {
 public:
  MeshPipeline(const MeshCase& shape, const MeshGroups& groups)
      : groups_(groups), order_(order_of(shape)), shape_(shape_of(order_)) {
    const int num_stages = extent_of(order_).num_stages;
    const Placement placement = placement_of(order_, num_stages);
    for (const auto& stage : make_stages(model_.make(num_stages))) {
      if (groups.has(placement.rank_of(stage->index()))) stages_.push_back(stage);
    }
    spread_stages(stages_, shape.spread, {groups.replica(), kMeshReplicas});
    pipeline_ =
        std::make_unique<PipelineSchedule>(stages_, order_,
                                           ScheduleOptions{.num_microbatches = num_microbatches(),
                                                           .group = groups.pipeline,
                                                           .data_group = groups.data,
                                                           .max_active_stages = 1,
                                                           .loss = model_.loss});
  }

  PipelineSchedule& pipeline() { return *pipeline_; }
  NamedTensors parameters() const { return whole_parameters(stages_); }

  StepBatch batch(std::int64_t step) const {
    const int rows = rows_of_step(shape_, static_cast<int>(step));
    return {.inputs = {own_part(model_.make_inputs(rows))},
            .options = {.target = own_part(model_.make_targets(rows)), .return_outputs = false}};
  }

 private:
  int num_microbatches() const { return shape_.num_microbatches; }

  torch::Tensor own_part(const torch::Tensor& joined) const {
    const std::vector<torch::Tensor> parts =
        torch::tensor_split(joined, kMeshReplicas * num_microbatches());
    const auto first = parts.begin() + groups_.replica() * num_microbatches();
    return torch::cat(std::vector<torch::Tensor>(first, first + num_microbatches()));
  }

  const TestModel model_ = mlp_model();
  const MeshGroups& groups_;
  Schedule order_;
  ReplicaShape shape_;
  StageList stages_;
  std::unique_ptr<PipelineSchedule> pipeline_;
};

// Five steps; the parameters of this process.
std::string train_in_mesh(const MeshCase& shape, const MeshGroups& groups,
                          const std::function<void(int step)>& before_step = {}) {
  MeshPipeline mesh(shape, groups);
  torch::optim::AdamW optimizer = make_adam(mesh.pipeline().parameters());
  for (int step = 0; step < 5; ++step) {
    if (before_step) before_step(step);
    StepBatch batch = mesh.batch(step);
    mesh.pipeline().step(std::move(batch.inputs), batch.options);
    optimizer.step();
    optimizer.zero_grad();
  }
  return lines_of(name_of(shape, groups.replica()), mesh.parameters());
}

class OverMeshes : public ::testing::TestWithParam<TransportKind> {};

// Every schedule that trains, with stages of each kind.
std::vector<MeshCase> mesh_cases() {
  std::vector<MeshCase> cases;
  for (const TrainingCase& training : training_cases(kMeshRanks)) {
    for (const Spread spread : {Spread::Replicated, Spread::Sharded, Spread::Mixed}) {
      cases.push_back({training.schedule, spread});
    }
  }
  return cases;
}

std::string train_all_in_mesh(const std::vector<MeshCase>& cases, const MeshGroups& groups) {
  std::string lines;
  for (const MeshCase& shape : cases) lines += train_in_mesh(shape, groups);
  return lines;
}

void expect_like_one_process(const std::vector<RankEnd>& ends, const std::vector<MeshCase>& cases) {
  std::string lines;
  for (const RankEnd& end : ends) {
    ASSERT_TRUE(end.has_returned) << end.text << " (signal " << end.signal << ")";
    lines += end.text;
  }
  const std::string expected = run_apart([&] {
    std::string all;
    std::string schedule;
    NamedTensors parameters;
    for (const MeshCase& shape : cases) {
      if (shape.schedule != schedule) {
        schedule = shape.schedule;
        parameters = train_by_ruler(mlp_model(), order_of(shape), shape_of(order_of(shape)));
      }
      for (const int replica : {0, 1}) all += lines_of(name_of(shape, replica), parameters);
    }
    return all;
  });
  EXPECT_GE(sorted_lines(expected).size(), 8 * cases.size());
  EXPECT_EQ(sorted_lines(lines), sorted_lines(expected));
}

TEST_P(OverMeshes, TrainLikeOneProcessInTheDocumentedOrder) {
  const std::vector<MeshCase> cases = mesh_cases();
  EXPECT_GE(cases.size(), 3 * 14U);
  const std::vector<RankEnd> ends =
      run_forked(kMeshRanks * kMeshReplicas,
                 [&](const WorldOptions& options) {
                   World world(options);
                   return train_all_in_mesh(cases, MeshGroups(world, GetParam()));
                 },
                 {.patience = std::chrono::minutes(5)});
  expect_like_one_process(ends, cases);
}

TEST(Mesh, OfProcessesWithSeveralRanksTrainsLikeOneProcess) {
  const std::vector<MeshCase> cases = {{"Interleaved1F1B", Spread::Replicated},
                                       {"ZBVZeroBubble", Spread::Sharded},
                                       {"1F1B", Spread::Mixed}};
  const std::vector<RankEnd> ends = run_forked(kMeshReplicas, [&](const WorldOptions& options) {
    World world(options);
    return train_all_in_mesh(cases, MeshGroups(world));
  });
  expect_like_one_process(ends, cases);
}

// The gradients of one step are not finite, because of the last row of the last replica.
bool is_bad_in_mesh(std::int64_t step) {
  return step == 2;
}

StepBatch batch_with_bad_step(const MeshPipeline& mesh, int replica, std::int64_t step) {
  StepBatch batch = mesh.batch(step);
  if (is_bad_in_mesh(step) && replica == kMeshReplicas - 1) {
    batch.options.target.toTensor()[-1].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  return batch;
}

// The same with a barrier.
std::string train_past_bad_step(const MeshCase& shape, const MeshGroups& groups) {
  MeshPipeline mesh(shape, groups);
  torch::optim::AdamW optimizer = make_adam(mesh.pipeline().parameters());
  for (int step = 0; step < 5; ++step) {
    StepBatch batch = batch_with_bad_step(mesh, groups.replica(), step);
    mesh.pipeline().step(std::move(batch.inputs), batch.options);
    if (clip_grad_norm(mesh.pipeline(), kNoLimit).is_finite()) optimizer.step();
    for (const torch::Tensor& parameter : mesh.pipeline().parameters()) {
      parameter.mutable_grad().reset();
    }
  }
  return lines_of(name_of(shape, groups.replica()), mesh.parameters());
}

std::string stagger_past_bad_step(const MeshCase& shape, const MeshGroups& groups,
                                  int& num_rolled_back,
                                  const std::function<void(std::int64_t step)>& before_step = {}) {
  MeshPipeline mesh(shape, groups);
  StaggeredTrainer trainer(mesh.pipeline(), [](const std::vector<torch::Tensor>& parameters) {
    return std::make_unique<torch::optim::AdamW>(make_adam(parameters));
  });
  trainer.run({.count = 5,
               .batch =
                   [&](std::int64_t step) {
                     if (before_step) before_step(step);
                     return batch_with_bad_step(mesh, groups.replica(), step);
                   },
               .take_outcome =
                   [&](const StepOutcome& outcome) {
                     if (outcome.was_rolled_back && is_bad_in_mesh(outcome.step)) ++num_rolled_back;
                   }});
  return lines_of(name_of(shape, groups.replica()), mesh.parameters());
}

// Trains with and without a barrier, and says whether that makes a difference.
std::string compare_with_barrier(const MeshGroups& groups) {
  std::string report;
  for (const MeshCase& shape :
       {MeshCase{"1F1B", Spread::Replicated}, MeshCase{"ZB-H2", Spread::Mixed},
        MeshCase{"ZBVZeroBubble", Spread::Sharded}}) {
    int num_rolled_back = 0;
    const std::string found = stagger_past_bad_step(shape, groups, num_rolled_back);
    report += fmt::format("{}, taken back: {}\n",
                          found == train_past_bad_step(shape, groups) ? "the same" : "other",
                          num_rolled_back);
  }
  return report;
}

void expect_no_difference(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.has_returned) << end.text << " (signal " << end.signal << ")";
    EXPECT_EQ(end.text,
              "the same, taken back: 1\nthe same, taken back: 1\nthe same, taken back: 1\n");
  }
}

TEST_P(OverMeshes, StaggeredStepsTrainLikeStepsWithABarrier) {
  expect_no_difference(run_forked(kMeshRanks * kMeshReplicas, [&](const WorldOptions& options) {
    World world(options);
    return compare_with_barrier(MeshGroups(world, GetParam()));
  }));
}

TEST(Mesh, OfProcessesWithSeveralRanksTakesStaggeredSteps) {
  expect_no_difference(run_forked(kMeshReplicas, [&](const WorldOptions& options) {
    World world(options);
    return compare_with_barrier(MeshGroups(world));
  }));
}

void expect_death_of_rank_3(const std::vector<RankEnd>& ends) {
  EXPECT_EQ(ends[3].signal, SIGKILL);
  for (const int rank : {0, 1, 2}) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(end.has_thrown) << rank << ": " << end.text;
    EXPECT_THAT(end.text, HasSubstr("rank 3 (pid")) << rank;
  }
}

TEST_P(OverMeshes, StaggeredStepsEndWithADeathInAnotherPipeline) {
  expect_death_of_rank_3(run_forked(4, [&](const WorldOptions& options) {
    World world(options);
    const MeshGroups groups(world, GetParam());
    int num_rolled_back = 0;
    return stagger_past_bad_step({"ZBVZeroBubble", Spread::Mixed}, groups, num_rolled_back,
                                 [&](std::int64_t step) {
                                   if (step == 3 && world.rank() == 3) kill(getpid(), SIGKILL);
                                 });
  }));
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
    return train_in_mesh({"1F1B", Spread::Mixed}, groups, [&](int step) {
      if (step == 2 && world.rank() == 3) kill(getpid(), SIGKILL);
    });
  });
  expect_death_of_rank_3(ends);
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
