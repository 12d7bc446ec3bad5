#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
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
#include "tests/run/executor/allocation_log.h"

// After the first step, when every buffer has found its size, our own code allocates nothing more:
// what is left is what libtorch needs for operators, for graphs and for running them backward.
namespace penstock {
namespace {

using testing::IsEmpty;

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

// Two ranks at work, without the pipeline around them.
class Ranks {
 public:
  Ranks(Settings settings, ExecutorOptions options = {})
      : settings_(std::move(settings)),
        options_(std::move(options)),
        program_(make_program(settings_)),
        extent_(extent_of(program_)),
        hub_(2, extent_, wait_policy_for(2, std::chrono::seconds(60))),
        progress_(2),
        threads_(2, {.wait = wait_policy_for(2, std::chrono::seconds(60))}) {
    for (int index = 0; index < extent_.num_stages; ++index) stages_.push_back(make_stage(index));
    const Placement placement = placement_of(program_, extent_.num_stages);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<PipelineStage*> local;
      for (const int stage : placement.stages_of(rank)) {
        local.push_back(stages_[static_cast<std::size_t>(stage)].get());
      }
      executors_.push_back(std::make_unique<Executor>(rank, program_, local, hub_.endpoint(rank),
                                                      progress_, nullptr, options_));
    }
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      inputs_.push_back(
          {.args = {torch::randn({2, kWidth}).requires_grad_()},
           .kwargs = {{"scale", torch::randn({kWidth}).requires_grad_()}, {"shift", 0.5}}});
      targets_.emplace_back(torch::randn({2, kWidth}));
      weights_.push_back(1.0 / kMicrobatches);
    }
  }

  // Logs the last of five steps: which graph gets which buffer depends on the ranks' timing, so
  // that one step is not enough for all buffers to grow.
  void run_and_log() {
    for (int step = 1; step <= 5; ++step) run(/*is_logged=*/step == 5);
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
    const std::function<void(int)> run_rank = [&](int rank) {
      executors_[static_cast<std::size_t>(rank)]->run(work);
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
  InProcessHub hub_;
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

class Allocations : public testing::TestWithParam<Settings> {};

TEST_P(Allocations, AreLeftToLibtorchAfterTheFirstStep) {
  Ranks ranks(GetParam());
  ranks.run_and_log();
  EXPECT_GT(AllocationLog::num_allocations(), 0);
  EXPECT_THAT(AllocationLog::own(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(EverySchedule, Allocations,
                         testing::Values(Settings{"GPipe"}, Settings{"1F1B"},
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

TEST(AllocationLog, SeesWhatACustomFunctionAllocates) {
  ExecutorOptions options;
  options.custom_functions[ActionKind::SendForward] = [](ActionContext& context) {
    context.run();
    if (context.action().microbatch == 0) allocate();
  };
  Ranks ranks({.schedule = "1F1B"}, std::move(options));
  ranks.run_and_log();
  EXPECT_EQ(AllocationLog::own().size(), 1U);
}

}  // namespace
}  // namespace penstock
