#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/keep_forwards.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/executor/executor.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/rank_threads.h"
#include "penstock/run/transport/in_process/in_process_hub.h"
#include "penstock/run/transport/open_transport.h"
#include "tests/run/executor/allocation_log.h"
#include "tests/run/support/rank_processes.h"

// After the first step, when every buffer has found its size, our own code allocates nothing more:
// what is left is what libtorch needs for operators, for graphs and for running them backward.
namespace penstock {
namespace {

using ::testing::IsEmpty;

constexpr int kMicrobatches = 6;
constexpr int kWidth = 4;

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

struct Settings {
  std::string schedule;
  bool is_training = true;
  WeightGradients weight_gradients = WeightGradients::Exact;

  friend void PrintTo(const Settings& settings, std::ostream* out) { *out << settings.schedule; }
};

Schedule make_program(const Settings& settings) {
  const Schedule order =
      make_schedule(settings.schedule, {.num_ranks = 2, .num_microbatches = kMicrobatches});
  return lower(settings.is_training ? order : keep_forwards(order), {.sharding = false});
}

// What connects the ranks of this process.
using Endpoints = std::vector<std::pair<int, Transport*>>;

// Ranks of two at work, without the pipeline around them: all that have an endpoint here.
class Ranks {
 public:
  Ranks(Settings settings, const Endpoints& endpoints, ExecutorOptions options = {})
      : settings_(std::move(settings)),
        options_(std::move(options)),
        program_(make_program(settings_)),
        extent_(extent_of(program_)),
        progress_(2),
        threads_(static_cast<int>(endpoints.size()),
                 {.wait = wait_policy_for(2, std::chrono::seconds(60))}) {
    const Placement placement = placement_of(program_, extent_.num_stages);
    for (const auto& [rank, transport] : endpoints) {
      std::vector<PipelineStage*> local;
      for (const int stage : placement.stages_of(rank)) {
        stages_.push_back(make_stage(stage));
        local.push_back(stages_.back().get());
      }
      executors_.push_back(std::make_unique<Executor>(rank, program_, local, *transport, progress_,
                                                      nullptr, options_));
    }
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      inputs_.push_back(
          {.args = {torch::randn({2, kWidth}).requires_grad_()},
           .kwargs = {{"scale", torch::randn({kWidth}).requires_grad_()}, {"shift", 0.5}}});
      targets_.emplace_back(torch::randn({2, kWidth}));
      weights_.push_back(1.0 / kMicrobatches);
    }
  }

  // Logs the last of some steps: which graph gets which buffer depends on the ranks' timing, so
  // that one step is not enough for all buffers to grow.
  void run_and_log(int num_steps = 5) {
    for (int step = 1; step <= num_steps; ++step) run(/*is_logged=*/step == num_steps);
  }

 private:
  void run(bool is_logged) {
    StepWork work{.number = num_steps_++,
                  .is_training = settings_.is_training,
                  .weight_gradients = settings_.weight_gradients,
                  .inputs = inputs_,
                  .targets = targets_,
                  .loss = &loss_,
                  .loss_keywords = &loss_keywords_,
                  .loss_weights = weights_,
                  .keeps_outputs = true,
                  .outputs = std::vector<c10::IValue>(kMicrobatches),
                  .losses = std::vector<torch::Tensor>(kMicrobatches)};
    for (const auto& stage : stages_) {
      stage->begin_step({settings_.is_training, kMicrobatches, settings_.weight_gradients});
    }
    const std::function<void(int)> run_rank = [&](int place) {
      executors_[static_cast<std::size_t>(place)]->run(work);
    };
    if (is_logged) AllocationLog::start();
    threads_.run(run_rank);
    AllocationLog::stop();
    for (const auto& stage : stages_) stage->end_step();
  }

  // A linear layer and GELU; the second stage takes keywords too.
  std::shared_ptr<PipelineStage> make_stage(int index) const {
    const StagePosition position{.index = index, .num_stages = extent_.num_stages};
    const torch::nn::Linear layer(kWidth, kWidth);
    const auto forward = [layer = layer.ptr()](const torch::Tensor& input) {
      return torch::gelu(layer->forward(input));
    };
    if (index != 1) {
      return std::make_shared<PipelineStage>(
          make_stage_module([forward](const torch::Tensor& input) { return forward(input); }),
          position);
    }
    return std::make_shared<PipelineStage>(
        make_stage_module(
            [forward](const std::vector<c10::IValue>& inputs,
                      const KeywordArguments& keywords) -> c10::IValue {
              return forward(inputs.at(0).toTensor() * keywords.at("scale").toTensor()) +
                     keywords.at("shift").toDouble();
            },
            {.keywords = {"scale", "shift"}}),
        position);
  }

  Settings settings_;
  ExecutorOptions options_;
  Schedule program_;
  Extent extent_;
  ProgressBoard progress_;
  RankThreads threads_;
  std::vector<std::shared_ptr<PipelineStage>> stages_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<Microbatch> inputs_;
  std::vector<c10::IValue> targets_;
  std::vector<double> weights_;
  LossFunction loss_ = loss_of;
  KeywordArguments loss_keywords_;
  std::int64_t num_steps_ = 0;
};

// Both ranks as threads.
class ThreadRanks {
 public:
  explicit ThreadRanks(const Settings& settings, ExecutorOptions options = {})
      : hub_(2, extent_of(make_program(settings)), wait_policy_for(2, std::chrono::seconds(60))),
        ranks_(settings, {{0, &hub_.endpoint(0)}, {1, &hub_.endpoint(1)}}, std::move(options)) {}

  void run_and_log() { ranks_.run_and_log(); }

 private:
  InProcessHub hub_;
  Ranks ranks_;
};

class Allocations : public ::testing::TestWithParam<Settings> {};

TEST_P(Allocations, AreLeftToLibtorchAfterTheFirstStep) {
  ThreadRanks ranks(GetParam());
  ranks.run_and_log();
  EXPECT_GT(AllocationLog::num_allocations(), 0);
  EXPECT_THAT(AllocationLog::own(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(EverySchedule, Allocations,
                         ::testing::Values(Settings{"GPipe"}, Settings{"1F1B"},
                                           Settings{"Interleaved1F1B"}, Settings{"ZBVZeroBubble"},
                                           Settings{"DualPipeV"},
                                           Settings{"ZBVZeroBubble", true, WeightGradients::Fused},
                                           Settings{"1F1B", false}),
                         [](const auto& instance) {
                           const Settings& settings = instance.param;
                           return settings.schedule + (settings.is_training ? "" : "_eval") +
                                  (settings.weight_gradients == WeightGradients::Fused ? "_fused"
                                                                                       : "");
                         });

void allocate() {
  static std::unique_ptr<int> kept;
  kept = std::make_unique<int>(1);
}

// Allocates once per step, on rank 0.
ExecutorOptions allocating_options() {
  ExecutorOptions options;
  options.custom_functions[ActionKind::SendForward] = [](ActionContext& context) {
    context.run();
    if (context.action().microbatch == 0) allocate();
  };
  return options;
}

TEST(AllocationLog, SeesWhatACustomFunctionAllocates) {
  ThreadRanks ranks({.schedule = "1F1B"}, allocating_options());
  ranks.run_and_log();
  EXPECT_EQ(AllocationLog::own().size(), 1U);
}

class AllocationsOverProcesses : public ::testing::TestWithParam<TransportKind> {};

// Gloo allocates, in libtorch, for every message; what is ours does not.
TEST_P(AllocationsOverProcesses, AreLeftToLibtorchAfterTheFirstSteps) {
  run_in_processes(2, [](const WorldOptions& options) {
    World world(options);
    for (const char* schedule : {"1F1B", "ZBVZeroBubble"}) {
      const Settings settings{schedule};
      const auto transport =
          open_transport(world, world.everyone(),
                         {.kind = GetParam(), .extent = extent_of(make_program(settings))});
      Ranks ranks(settings, {{world.rank(), transport.get()}});
      // Messages lie in memory of either process until they are read, now more of them, now less.
      ranks.run_and_log(50);
      EXPECT_GT(AllocationLog::num_allocations(), 0);
      EXPECT_THAT(AllocationLog::own(), IsEmpty()) << schedule;
      world.exchange(world.everyone(), std::string("done with ") + schedule, "");
    }
  });
}

TEST_P(AllocationsOverProcesses, AreSeen) {
  run_in_processes(2, [](const WorldOptions& options) {
    World world(options);
    const Settings settings{"1F1B"};
    const auto transport = open_transport(
        world, world.everyone(), {.kind = GetParam(), .extent = extent_of(make_program(settings))});
    Ranks ranks(settings, {{world.rank(), transport.get()}}, allocating_options());
    ranks.run_and_log(50);
    EXPECT_EQ(AllocationLog::own().size(), world.rank() == 0 ? 1U : 0U);
    world.exchange(world.everyone(), "done", "");
  });
}

INSTANTIATE_TEST_SUITE_P(Processes, AllocationsOverProcesses,
                         ::testing::Values(TransportKind::SharedMemory, TransportKind::Gloo),
                         [](const auto& instance) {
                           return instance.param == TransportKind::Gloo ? "Gloo" : "SharedMemory";
                         });

}  // namespace
}  // namespace penstock
