#include <atomic>
#include <cctype>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/training/staggered_trainer.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"
#include "tests/run/support/replica_training.h"
#include "tests/run/training/troubled_run.h"

// Replicas of a pipeline that take steps without a barrier: to the bit what they give with one.
namespace penstock {
namespace {

constexpr int kReplicas = 2;
constexpr int kReplicaMicrobatches = 4;
constexpr int kReplicaRows = 2 * kReplicaMicrobatches;

// What is trained.
struct ReplicaSubject {
  std::function<StageList(int num_stages)> make_stages;
  std::function<torch::Tensor(int rows)> make_inputs;
  std::function<torch::Tensor(int rows)> make_targets;
  LossFunction loss;
};

ReplicaSubject subject_of(const TestModel& model) {
  return {.make_stages = [model](int num_stages) { return make_stages(model.make(num_stages)); },
          .make_inputs = model.make_inputs,
          .make_targets = model.make_targets,
          .loss = model.loss};
}

struct JoinedBatch {
  torch::Tensor inputs;
  torch::Tensor targets;

  torch::Tensor part_of(const torch::Tensor& tensor, int replica) const {
    return tensor.narrow(0, replica * kReplicaRows, kReplicaRows);
  }
};

JoinedBatch joined_batch(const ReplicaSubject& subject, std::int64_t step) {
  const int rows = kReplicas * kReplicaRows;
  JoinedBatch batch{.inputs = subject.make_inputs(rows).roll(step, 0),
                    .targets = subject.make_targets(rows).roll(2 * step, 0).clone()};
  if (is_bad(step)) batch.targets[-2].fill_(std::numeric_limits<float>::quiet_NaN());
  if (is_long(step)) batch.targets *= 1000;
  return batch;
}

// Made by one thread, because models draw them from the generator that all threads share.
std::vector<JoinedBatch> joined_batches(const ReplicaSubject& subject) {
  std::vector<JoinedBatch> batches;
  for (int step = 0; step < kTroubledSteps; ++step) batches.push_back(joined_batch(subject, step));
  return batches;
}

std::unique_ptr<PipelineReplicas> make_replicas(const ReplicaSubject& subject,
                                                const std::string& schedule, Spread spread,
                                                const ScheduleOptions& given = {}) {
  const Schedule order =
      make_schedule(schedule, {.num_ranks = 2, .num_microbatches = kReplicaMicrobatches});
  return std::make_unique<PipelineReplicas>(kReplicas, [&](const Replica& replica) {
    const StageList stages = subject.make_stages(extent_of(order).num_stages);
    spread_stages(stages, spread, {replica.index, replica.count});
    ScheduleOptions options = given;
    options.num_microbatches = kReplicaMicrobatches;
    options.data_group = replica.group;
    options.max_active_stages = 1;
    options.loss = subject.loss;
    return std::make_unique<PipelineSchedule>(stages, order, options);
  });
}

std::unique_ptr<torch::optim::Optimizer> replica_optimizer(std::vector<torch::Tensor> parameters) {
  return make_optimizer("adamw", std::move(parameters), {.learning_rate = 0.01});
}

// One of the replicas, when it is trained.
struct TrainedReplica {
  std::vector<std::vector<torch::Tensor>> losses = {};  // by step
  std::vector<double> norms = {};
  std::vector<std::int64_t> rolled_back = {};
  std::vector<torch::Tensor> tensors = {};  // whole parameters, and buffers
};

void note_tensors(PipelineReplicas& replicas, std::vector<TrainedReplica>& trained) {
  replicas.run([&](int index) {
    TrainedReplica& own = trained[static_cast<std::size_t>(index)];
    const StageList& stages = replicas.replica(index).stages();
    for (const auto& entry : whole_parameters(stages)) own.tensors.push_back(entry.second);
    for (const auto& stage : stages) {
      for (const auto& entry : stage->module().named_buffers()) own.tensors.push_back(entry.second);
    }
  });
}

std::vector<TrainedReplica> train_replicas_with_barrier(const ReplicaSubject& subject,
                                                        const std::string& schedule,
                                                        Spread spread) {
  const auto replicas = make_replicas(subject, schedule, spread);
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
  for (int index = 0; index < kReplicas; ++index) {
    optimizers.push_back(replica_optimizer(replicas->replica(index).parameters()));
  }
  std::vector<TrainedReplica> trained(kReplicas);
  for (std::int64_t step = 0; step < kTroubledSteps; ++step) {
    const JoinedBatch batch = joined_batch(subject, step);
    const StepResult result =
        replicas->step({batch.inputs}, {.target = batch.targets, .return_outputs = false});
    replicas->run([&](int index) {
      const auto place = static_cast<std::size_t>(index);
      const GradientNorm gradients = clip_grad_norm(replicas->replica(index), kTroubledNorm);
      if (gradients.is_finite()) optimizers[place]->step();
      for (const torch::Tensor& parameter : replicas->replica(index).parameters()) {
        parameter.mutable_grad().reset();
      }
      const auto first = result.losses.begin() + index * kReplicaMicrobatches;
      trained[place].losses.emplace_back(first, first + kReplicaMicrobatches);
      trained[place].norms.push_back(gradients.norm);
    });
  }
  note_tensors(*replicas, trained);
  return trained;
}

StaggeredSteps steps_of(const std::vector<JoinedBatch>& batches, int replica,
                        TrainedReplica& trained) {
  return {.count = kTroubledSteps,
          .batch =
              [&batches, replica](std::int64_t step) {
                const JoinedBatch& batch = batches[static_cast<std::size_t>(step)];
                return StepBatch{.inputs = {batch.part_of(batch.inputs, replica)},
                                 .options = {.target = batch.part_of(batch.targets, replica),
                                             .return_outputs = false}};
              },
          .take_outcome =
              [&trained](const StepOutcome& outcome) {
                trained.losses.push_back(outcome.result.losses);
                trained.norms.push_back(outcome.gradients.norm);
                if (outcome.was_rolled_back) trained.rolled_back.push_back(outcome.step);
              }};
}

std::vector<std::unique_ptr<StaggeredTrainer>> make_trainers(PipelineReplicas& replicas) {
  std::vector<std::unique_ptr<StaggeredTrainer>> trainers;
  for (int index = 0; index < replicas.num_replicas(); ++index) {
    trainers.push_back(std::make_unique<StaggeredTrainer>(
        replicas.replica(index), replica_optimizer, StaggeredOptions{.max_norm = kTroubledNorm}));
  }
  return trainers;
}

std::vector<TrainedReplica> train_replicas_staggered(const ReplicaSubject& subject,
                                                     const std::string& schedule, Spread spread) {
  const auto replicas = make_replicas(subject, schedule, spread);
  const auto trainers = make_trainers(*replicas);
  const std::vector<JoinedBatch> batches = joined_batches(subject);
  std::vector<TrainedReplica> trained(kReplicas);
  replicas->run([&](int index) {
    const auto place = static_cast<std::size_t>(index);
    trainers[place]->run(steps_of(batches, index, trained[place]));
  });
  note_tensors(*replicas, trained);
  return trained;
}

void expect_same_training(const ReplicaSubject& subject, const std::string& schedule,
                          Spread spread) {
  const std::vector<TrainedReplica> expected =
      train_replicas_with_barrier(subject, schedule, spread);
  const std::vector<TrainedReplica> found = train_replicas_staggered(subject, schedule, spread);
  for (std::size_t replica = 0; replica < found.size(); ++replica) {
    SCOPED_TRACE("replica " + std::to_string(replica));
    expect_equal(found[replica].tensors, expected[replica].tensors, "parameter or buffer");
    EXPECT_THAT(found[replica].norms,
                ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), expected[replica].norms));
    ASSERT_EQ(found[replica].losses.size(), expected[replica].losses.size());
    for (std::size_t step = 0; step < found[replica].losses.size(); ++step) {
      if (is_bad(static_cast<std::int64_t>(step))) continue;
      expect_equal(found[replica].losses[step], expected[replica].losses[step], "loss");
    }
    // Step 6 comes after a guess that was wrong, so it is not guessed.
    EXPECT_THAT(found[replica].rolled_back, ::testing::ElementsAre(3, 5, 8));
  }
}

struct ReplicaSetting {
  std::string schedule;
  Spread spread = Spread::Replicated;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
void PrintTo(const ReplicaSetting& setting, std::ostream* out) {
  *out << setting.schedule << " " << to_string(setting.spread);
}

class StaggeredReplicas : public ::testing::TestWithParam<ReplicaSetting> {};

TEST_P(StaggeredReplicas, TrainLikeStepsWithABarrier) {
  for (const TestModel& model : {mlp_model(), conv_net_model()}) {
    SCOPED_TRACE(model.name);
    expect_same_training(subject_of(model), GetParam().schedule, GetParam().spread);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, StaggeredReplicas,
                         ::testing::Values(ReplicaSetting{"1F1B", Spread::Replicated},
                                           ReplicaSetting{"1F1B", Spread::Sharded},
                                           ReplicaSetting{"ZB-H2", Spread::Replicated},
                                           ReplicaSetting{"ZB-H2", Spread::Sharded},
                                           ReplicaSetting{"ZBVZeroBubble", Spread::Replicated},
                                           ReplicaSetting{"ZBVZeroBubble", Spread::Sharded},
                                           ReplicaSetting{"ZBVZeroBubble", Spread::Mixed},
                                           ReplicaSetting{"Interleaved1F1B", Spread::Mixed}),
                         [](const auto& instance) {
                           std::string name =
                               instance.param.schedule + to_string(instance.param.spread);
                           std::erase_if(name,
                                         [](char letter) { return std::isalnum(letter) == 0; });
                           return name;
                         });

// ---- random numbers ----

StageList dropout_stages(int num_stages) {
  torch::manual_seed(11);
  StageList stages;
  for (int index = 0; index < num_stages; ++index) {
    torch::nn::Sequential block(torch::nn::Linear(6, 6), torch::nn::Dropout(0.3));
    stages.push_back(std::make_shared<PipelineStage>(make_stage_module(block),
                                                     StagePosition{index, num_stages}));
  }
  return stages;
}

// Every microbatch of every replica has numbers of its own, also if its list is run again.
TEST(StaggeredReplicasWithDropout, DrawTheSameNumbers) {
  const auto ramp = [](int rows) { return torch::linspace(-1, 1, rows * 6).reshape({rows, 6}); };
  expect_same_training(
      {.make_stages = dropout_stages,
       .make_inputs = ramp,
       .make_targets = ramp,
       .loss = [](const torch::Tensor& output,
                  const torch::Tensor& target) { return torch::mse_loss(output, target); }},
      "1F1B", Spread::Mixed);
}

// ---- what they refuse, and failures ----

std::string message_of_staggered(PipelineReplicas& replicas, const ReplicaSubject& subject) {
  const std::vector<JoinedBatch> batches = joined_batches(subject);
  return message_of([&] {
    const auto trainers = make_trainers(replicas);
    std::vector<TrainedReplica> trained(kReplicas);
    replicas.run([&](int index) {
      const auto place = static_cast<std::size_t>(index);
      trainers[place]->run(steps_of(batches, index, trained[place]));
    });
  });
}

TEST(StaggeredReplicasRefuse, WeightsThatDependOnTheBatch) {
  const ReplicaSubject subject = subject_of(mlp_model());
  const auto replicas =
      make_replicas(subject, "1F1B", Spread::Replicated, {.loss_weights = LossWeights::ByRows});
  EXPECT_EQ(message_of_staggered(*replicas, subject),
            "LossWeights::ByRows counts the rows of all replicas before each step, which a series "
            "of steps does not; use LossWeights::Equal, or call step()");
}

TEST(StaggeredReplicasRefuse, ParametersThatStagesDoNotKnow) {
  ReplicaSubject subject = subject_of(mlp_model());
  const auto replicas = make_replicas(subject, "1F1B", Spread::Replicated);
  const auto with_another = [](std::vector<torch::Tensor> parameters) {
    parameters.push_back(torch::ones({2}, torch::requires_grad()));
    return replica_optimizer(std::move(parameters));
  };
  EXPECT_EQ(message_of([&] { StaggeredTrainer(replicas->replica(0), with_another); }),
            "the optimizer of rank 0 trains 1 tensor that no stage of the rank has, so replicas do "
            "not add up its gradients; give the stage a module with all its parameters");
}

TEST(StaggeredReplicasFailure, OfOneStopsAll) {
  ReplicaSubject subject = subject_of(mlp_model());
  const auto num_left = std::make_shared<std::atomic<int>>(21);  // the third step, or so
  subject.loss = [num_left](const torch::Tensor& output, const torch::Tensor& target) {
    if ((*num_left)-- == 0) throw std::runtime_error("out of luck");
    return torch::mse_loss(output, target);
  };
  const auto replicas = make_replicas(subject, "ZBVZeroBubble", Spread::Mixed);
  EXPECT_THAT(message_of_staggered(*replicas, subject),
              ::testing::AllOf(::testing::StartsWith("rank 0, step "), ::testing::HasSubstr("(3F"),
                               ::testing::HasSubstr("out of luck")));
}

}  // namespace
}  // namespace penstock
