// What documents show without a program around it. Compiled, so that it stays right; never run.

#include <map>
#include <memory>
#include <mutex>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/optimizer/learning_rate.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/training/gradient_norm.h"
#include "penstock/run/training/staggered_trainer.h"

// As libtorch has it where it was built with MPI.
namespace c10d {
struct ProcessGroupMPI {
  static penstock::BackendPtr createProcessGroupMPI();
};
}  // namespace c10d

namespace documents {

struct Data {
  penstock::StepBatch batch(std::int64_t step) const;
  penstock::StepBatch part(std::int64_t step, int replica) const;
};

void log(const penstock::StepOutcome& outcome);

// docs/concepts/clipping.md
void clip(penstock::PipelineSchedule& pipeline, torch::optim::Optimizer& optimizer,
          const torch::Tensor& inputs, const torch::Tensor& targets) {
  pipeline.step({inputs}, {.target = targets});
  const penstock::GradientNorm gradients = penstock::clip_grad_norm(pipeline, 1.0);
  if (gradients.is_finite()) optimizer.step();
}

// docs/guide/checkpoints.md
void save(penstock::World& world, const std::shared_ptr<penstock::ProcessRanks>& ranks,
          const std::vector<penstock::RankState>& states,
          const penstock::TrainingPosition& position, const std::filesystem::path& folder) {
  const penstock::CheckpointGroup group =
      penstock::checkpoint_group(world, world.everyone(), ranks);
  penstock::save_checkpoint(folder, states, position, {.keep = 3, .group = group});
}

void save_replicas(penstock::PipelineReplicas& replicas,
                   const std::map<int, std::unique_ptr<torch::optim::Optimizer>>& optimizers,
                   const penstock::TrainingPosition& position,
                   const std::filesystem::path& folder) {
  std::vector<penstock::GatheredState> states;
  std::mutex mutex;
  replicas.run([&](int replica) {
    const auto tensors =
        replica == 0 ? penstock::StageTensors::All : penstock::StageTensors::Parameters;
    for (const penstock::RankState& state : penstock::rank_states(
             replicas.replica(replica).stages(), optimizers.at(replica).get(), tensors)) {
      penstock::GatheredState whole = penstock::gather(state);
      const std::scoped_lock lock(mutex);
      states.push_back(std::move(whole));
    }
  });
  penstock::save_checkpoint(folder, states, position);
}

// docs/concepts/staggered-steps.md
void stagger(penstock::PipelineSchedule& pipeline, const Data& data,
             const penstock::LearningRateSchedule& schedule) {
  penstock::StaggeredTrainer trainer(pipeline,
                                     [](std::vector<torch::Tensor> parameters) {
                                       return penstock::make_optimizer(
                                           "adamw", std::move(parameters), {.learning_rate = 3e-4});
                                     },
                                     {.max_norm = 1.0, .learning_rate = [&](std::int64_t step) {
                                        return penstock::learning_rate(schedule, step);
                                      }});
  trainer.run({.count = 1000,
               .batch = [&](std::int64_t step) { return data.batch(step); },
               .take_outcome = [&](penstock::StepOutcome outcome) { log(outcome); }});
}

void stagger_replicas(penstock::PipelineReplicas& replicas, const Data& data,
                      const std::map<int, std::unique_ptr<penstock::StaggeredTrainer>>& trainers) {
  replicas.run([&](int replica) {
    trainers.at(replica)->run({.count = 1000, .batch = [&, replica](std::int64_t step) {
                                 return data.part(step, replica);
                               }});
  });
}

// docs/concepts/data-parallel.md
void join_mesh(penstock::World& world, penstock::ScheduleOptions& options) {
  const penstock::Mesh mesh(world.size(), {.pipeline = 2, .data = 2});
  options.group = std::make_shared<penstock::ProcessRanks>(
      world, penstock::ProcessRankOptions{.group = mesh.pipeline_of(world.rank())});
  options.data_group = std::make_shared<penstock::ProcessRanks>(
      world, penstock::ProcessRankOptions{.group = mesh.data_group_of(world.rank())});
}

// docs/concepts/transports.md
std::shared_ptr<penstock::ProcessRanks> ranks_over_mpi(penstock::World& world) {
  const auto make_mpi = [](const auto& /*store*/, int /*rank*/,
                           int /*size*/) -> penstock::BackendPtr {
    return c10d::ProcessGroupMPI::createProcessGroupMPI();
  };
  const auto group = std::make_shared<penstock::ProcessRanks>(
      world, penstock::ProcessRankOptions{.transport = penstock::TransportKind::OwnBackend,
                                          .make_backend = make_mpi});
  return group;
}

}  // namespace documents
