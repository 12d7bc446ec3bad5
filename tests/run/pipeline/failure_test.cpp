#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/prover/check.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kNever = 1'000'000;

// A stage that can be told to throw: in its forward, or from a hook in the backward of its input or
// of its parameters.
enum class Place { FirstForward, MiddleForward, LastForward, InputHook, WeightHook, Loss, Custom };

constexpr std::array<std::pair<Place, const char*>, 7> kPlaces = {{
    {Place::FirstForward, "FirstForward"},
    {Place::MiddleForward, "MiddleForward"},
    {Place::LastForward, "LastForward"},
    {Place::InputHook, "InputHook"},
    {Place::WeightHook, "WeightHook"},
    {Place::Loss, "Loss"},
    {Place::Custom, "CustomFunction"},
}};

const char* name_of(Place place) {
  return std::find_if(kPlaces.begin(), kPlaces.end(),
                      [place](const auto& entry) { return entry.first == place; })
      ->second;
}

// Throws when it is called for the third time after it was set.
class Trap {
 public:
  void set() { *calls_left_ = 2; }
  void remove() { *calls_left_ = kNever; }
  void step_on() const {
    if ((*calls_left_)-- == 0) throw std::runtime_error("the cable was cut");
  }

 private:
  std::shared_ptr<std::atomic<int>> calls_left_ = std::make_shared<std::atomic<int>>(kNever);
};

// Knows which tensors are still there. Safe from any thread.
class Watch {
 public:
  void note(const torch::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(tensor.storage().getWeakStorageImpl());
  }
  std::ptrdiff_t num_alive() const {
    return std::count_if(seen_.begin(), seen_.end(),
                         [](const auto& storage) { return storage.use_count() > 0; });
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen_;
};

// Shows its outputs, and the gradients of them, to a watch.
class WatchedBlock final : public Block {
 public:
  WatchedBlock(std::shared_ptr<Block> inner, std::shared_ptr<Watch> watch)
      : inner_(std::move(inner)), watch_(std::move(watch)) {
    register_module("inner", inner_);
  }
  torch::Tensor forward(torch::Tensor input) override {
    torch::Tensor output = inner_->forward(input);
    watch_->note(output);
    output.register_hook(
        [watch = watch_](const torch::Tensor& gradient) { watch->note(gradient); });
    return output;
  }

 private:
  std::shared_ptr<Block> inner_;
  std::shared_ptr<Watch> watch_;
};

// A block with a trap on the way in, or on the way back.
class FragileBlock final : public Block {
 public:
  FragileBlock(std::shared_ptr<Block> inner, Place place, Trap trap)
      : inner_(std::move(inner)), place_(place), trap_(std::move(trap)) {
    register_module("inner", inner_);
  }
  torch::Tensor forward(torch::Tensor input) override {
    if (place_ == Place::InputHook) {
      input.register_hook([trap = trap_](const torch::Tensor&) { trap.step_on(); });
    } else {
      trap_.step_on();
    }
    return inner_->forward(input);
  }

 private:
  std::shared_ptr<Block> inner_;
  Place place_;
  Trap trap_;
};

struct FailureCase {
  const char* schedule;
  int num_ranks;
  Place place;
};

std::vector<FailureCase> failure_cases() {
  std::vector<FailureCase> cases;
  // As many ranks as it takes for a stage to be in the middle.
  const std::vector<std::pair<const char*, int>> schedules = {
      {"GPipe", 3},         {"1F1B", 3},      {"Interleaved1F1B", 2},
      {"LoopedBFS", 2},     {"ZB-H1", 3},     {"InterleavedZeroBubble", 2},
      {"ZBVZeroBubble", 2}, {"DualPipeV", 2},
  };
  for (const auto& [schedule, num_ranks] : schedules) {
    for (const auto& [place, name] : kPlaces) cases.push_back({schedule, num_ranks, place});
  }
  return cases;
}

// A pipeline of two or three ranks with a trap at one place.
class FragilePipeline {
 public:
  explicit FragilePipeline(const FailureCase& failure)
      : order_(make_schedule(failure.schedule,
                             {.num_ranks = failure.num_ranks, .num_microbatches = 4})),
        num_stages_(extent_of(order_).num_stages),
        blocks_(model_.make(num_stages_)) {
    ScheduleOptions options{.num_microbatches = 4, .loss = model_.loss};
    plant(failure.place, options);
    for (auto& block : blocks_) block = std::make_shared<WatchedBlock>(block, watch_);
    pipeline_.emplace(make_stages(blocks_), order_, options);
  }

  StepResult step(const torch::Tensor& inputs, const torch::Tensor& targets) {
    const torch::Tensor copy = inputs.clone();
    watch_->note(copy);
    return pipeline_->step({copy}, {.target = targets});
  }
  // Of what steps have computed so far.
  std::ptrdiff_t num_tensors_alive() const { return watch_->num_alive(); }
  void expect_peak_of_prover() const {
    EXPECT_EQ(pipeline_->peak_activations(), check(pipeline_->program()).peak_activations);
  }
  Trap& trap() { return trap_; }
  const TestModel& model() const { return model_; }
  int num_stages() const { return num_stages_; }
  int bad_stage() const { return bad_stage_; }
  std::vector<torch::Tensor> parameters() const { return parameters_of(blocks_); }

 private:
  void plant(Place place, ScheduleOptions& options) {
    bad_stage_ = place == Place::FirstForward ? 0 : num_stages_ - 1;
    if (place == Place::MiddleForward || place == Place::InputHook || place == Place::WeightHook) {
      bad_stage_ = num_stages_ / 2;
    }
    auto& block = blocks_[static_cast<std::size_t>(bad_stage_)];
    switch (place) {
      case Place::FirstForward:
      case Place::MiddleForward:
      case Place::LastForward:
      case Place::InputHook:
        block = std::make_shared<FragileBlock>(block, place, trap_);
        break;
      case Place::WeightHook:
        block->parameters().front().register_hook(
            [trap = trap_](const torch::Tensor&) { trap.step_on(); });
        break;
      case Place::Loss:
        options.loss = [trap = trap_, loss = model_.loss](const torch::Tensor& output,
                                                          const torch::Tensor& target) {
          trap.step_on();
          return loss(output, target);
        };
        break;
      case Place::Custom:
        // After the action, whose results are then on their way already.
        options.custom_functions[ActionKind::Forward] =
            [trap = trap_, stage = bad_stage_](ActionContext& context) {
              context.run();
              if (context.action().stage == stage) trap.step_on();
            };
        break;
    }
  }

  TestModel model_ = mlp_model();
  Schedule order_;
  int num_stages_;
  int bad_stage_ = 0;
  Blocks blocks_;
  Trap trap_;
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  std::optional<PipelineSchedule> pipeline_;
};

class Failure : public ::testing::TestWithParam<FailureCase> {};

TEST_P(Failure, NamesRankStepAndActionAndLeavesNothingBehind) {
  const FailureCase& failure = GetParam();
  FragilePipeline fragile(failure);
  const TestModel& model = fragile.model();
  const torch::Tensor inputs = model.make_inputs(8);
  const torch::Tensor targets = model.make_targets(8);
  const std::string stage = std::to_string(fragile.bad_stage());
  const bool is_backward = failure.place == Place::InputHook || failure.place == Place::WeightHook;
  const bool is_in_module = failure.place == Place::FirstForward ||
                            failure.place == Place::MiddleForward ||
                            failure.place == Place::LastForward;
  std::vector<int> microbatches = {0, 1, 2, 3};
  if (failure.schedule == std::string("LoopedBFS")) microbatches = {3, 2, 1, 0};

  for (int round = 0; round < 2; ++round) {  // nor does a second failure
    fragile.trap().set();
    try {
      fragile.step(inputs, targets);
      FAIL() << "the step did not fail";
    } catch (const StepError& error) {
      const std::string number =
          std::to_string(is_backward ? microbatches[2] : 2);  // the third to come
      EXPECT_THAT(error.action(), is_backward ? ::testing::ContainsRegex(stage + "[BIW]" + number)
                                              : ::testing::ContainsRegex(stage + "F" + number));
      EXPECT_THAT(error.what(), StartsWith("rank " + std::to_string(error.position().rank) +
                                           ", step " + std::to_string(error.position().step)));
      EXPECT_THAT(error.what(), HasSubstr("the cable was cut"));
      if (is_in_module) {
        EXPECT_THAT(error.what(), HasSubstr("the module of stage " + stage +
                                            " failed on inputs (float tensor [2, 12]"));
      }
    }
    EXPECT_EQ(fragile.num_tensors_alive(), 0);
    // The retry is as good as a first try, once the gradients of the failed one are gone.
    fragile.trap().remove();
    for (const torch::Tensor& parameter : fragile.parameters()) parameter.mutable_grad().reset();
    const StepResult result = fragile.step(inputs, targets);
    const Blocks healthy = model.make(fragile.num_stages());
    const TrainedStep expected =
        train_without_pipeline(model, healthy, inputs, targets, microbatches);
    expect_equal(gradients_of(fragile.parameters()), expected.gradients, "gradient");
    expect_equal(result.losses, expected.losses, "loss");
    expect_equal({result.output.toTensor()}, {expected.output}, "output");
    fragile.expect_peak_of_prover();
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, Failure, ::testing::ValuesIn(failure_cases()),
                         [](const auto& instance) {
                           std::string name = instance.param.schedule;
                           std::erase(name, '-');
                           return name + "_" + name_of(instance.param.place);
                         });

TEST(PipelineFailure, StopsRanksThatWaitForTheOneThatFailed) {
  const auto begin = std::chrono::steady_clock::now();
  const auto first = [](torch::Tensor x) {
    if (x[0].item<double>() > 0) throw std::runtime_error("broken");
    return x;
  };
  const auto other = [](torch::Tensor x) { return x; };
  // The deadline would make this test last an hour.
  Schedule1F1B pipeline(make_stages(first, other, other),
                        {.num_microbatches = 2, .deadline = std::chrono::hours(1)});
  EXPECT_THAT(message_of([&] { pipeline.eval({torch::ones({2})}); }),
              StartsWith("rank 0, step 0 (0F0): "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(10));
  EXPECT_EQ(pipeline.eval({torch::zeros({2})}).output.toTensor().size(0), 2);
}

TEST(PipelineFailure, ExplainsAWaitThatTookTooLong) {
  const auto slow = [](torch::Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return x;
  };
  Schedule1F1B pipeline(make_stages(slow, [](torch::Tensor x) { return x; }),
                        {.num_microbatches = 1, .deadline = std::chrono::milliseconds(20)});
  EXPECT_EQ(message_of([&] { pipeline.eval({torch::ones({1})}); }),
            "rank 1, step 1 (1F0): waited 0.02 s for the activations of microbatch 0 from rank 0, "
            "which has not finished anything");
}

TEST(PipelineFailure, TakesAnyDeadlineThatIsPositive) {
  const auto evaluate = [](std::chrono::nanoseconds deadline) {
    return message_of([&] {
      StageList stages;
      for (int index = 0; index < 3; ++index) {
        stages.push_back(
            std::make_shared<PipelineStage>(make_stage_module([](torch::Tensor x) { return x; }),
                                            StagePosition{.index = index, .num_stages = 3}));
      }
      Schedule1F1B pipeline(stages, {.num_microbatches = 2, .deadline = deadline});
      pipeline.eval({torch::ones({2})});
    });
  };
  EXPECT_EQ(evaluate(std::chrono::nanoseconds::max()), "nothing was thrown");
  EXPECT_EQ(evaluate(std::chrono::nanoseconds::zero()),
            "ScheduleOptions::deadline is 0 s, so that every wait would fail at once; expected "
            "more than 0");
  EXPECT_THAT(evaluate(std::chrono::seconds(-1)), HasSubstr("ScheduleOptions::deadline is -1 s"));
}

}  // namespace
}  // namespace penstock
