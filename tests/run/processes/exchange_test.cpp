// Ranks tell each other something at the end of their lists. One that falls silent there is named
// like one that does so in its list.

#include <chrono>
#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/pipeline/step_series.h"
#include "tests/run/processes/faults.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int kMicrobatches = 3;
constexpr int kRows = 6;

// The stages of this process, trained with 1F1B on three ranks.
class TellingPipeline {
 public:
  explicit TellingPipeline(const TrainingOptions& options)
      : model_(mlp_model()),
        order_(make_schedule("1F1B", {.num_ranks = 3, .num_microbatches = kMicrobatches})),
        pipeline_(local_stages(options), order_,
                  {.num_microbatches = kMicrobatches,
                   .group = options.group,
                   .loss = model_.loss,
                   .observers = options.observers,
                   .deadline = options.deadline}) {}

  PipelineSchedule& pipeline() { return pipeline_; }
  StepBatch batch() const {
    return {.inputs = {model_.make_inputs(kRows)},
            .options = {.target = model_.make_targets(kRows)}};
  }

 private:
  StageList local_stages(const TrainingOptions& options) const {
    const Placement placement = placement_of(order_, 3);
    StageList local;
    for (const auto& stage : make_stages(model_.make(3))) {
      if (placement.rank_of(stage->index()) == options.group->local_ranks().front()) {
        local.push_back(stage);
      }
    }
    return local;
  }

  TestModel model_;
  Schedule order_;
  PipelineSchedule pipeline_;
};

// Steps, between which all ranks tell each other a number.
std::string tell_between_steps(const TrainingOptions& options) {
  TellingPipeline telling(options);
  for (int step = 0; step < options.num_steps; ++step) {
    const StepBatch batch = telling.batch();
    telling.pipeline().step(batch.inputs, batch.options);
    TORCH_CHECK(telling.pipeline().exchange(torch::full({1}, step)).size() == 3);
  }
  return {};
}

class TellingUpdate final : public RankUpdate {
 public:
  torch::Tensor tell_replicas() override { return torch::zeros({1}); }
  bool list_ended(std::int64_t step, std::span<const torch::Tensor> from_replicas,
                  RankExchange& exchange) override {
    TORCH_CHECK(from_replicas.size() == 1);
    exchange.tell(torch::full({1}, step));
    TORCH_CHECK(exchange.hear().size() == 3);
    return true;
  }
  void series_ended(RankExchange& /*exchange*/) override {}
};

// The same without a barrier between the steps.
std::string tell_in_series(const TrainingOptions& options) {
  TellingPipeline telling(options);
  for (int series = 0; series < options.num_steps; ++series) {
    telling.pipeline().run_series({.num_steps = 1,
                                   .batch = [&](std::int64_t) { return telling.batch(); },
                                   .make_update =
                                       [](int, std::span<PipelineStage* const>) {
                                         return std::make_unique<TellingUpdate>();
                                       }});
  }
  return {};
}

struct TellingWay {
  std::string name;
  std::string (*train)(const TrainingOptions& options);
};

class ExchangeFaultInjection : public ::testing::TestWithParam<TellingWay> {
 protected:
  static FaultyRun run(std::chrono::seconds deadline, double bound_s) {
    return {.num_ranks = 3, .train = GetParam().train, .deadline = deadline, .bound_s = bound_s};
  }
};

TEST_P(ExchangeFaultInjection, NamesTheRankThatWasStoppedBeforeItTells) {
  const Tally tally = inject(run(std::chrono::seconds(1), 3), {{2, Fault::kAfterTheList, SIGSTOP}});
  expect_all_named("stopped before it tells", tally);
  EXPECT_THAT(tally.text, HasSubstr("waits at the end of a list for rank 2 (pid "));
  EXPECT_THAT(tally.text, HasSubstr("to send what all ranks tell each other, which does not "
                                    "answer"));
}

TEST_P(ExchangeFaultInjection, NamesTheRankThatWasKilledBeforeItTells) {
  expect_all_named("killed before it tells",
                   inject(run(std::chrono::seconds(20), 2), {{2, Fault::kAfterTheList, SIGKILL}}));
}

INSTANTIATE_TEST_SUITE_P(Processes, ExchangeFaultInjection,
                         ::testing::Values(TellingWay{"BetweenSteps", tell_between_steps},
                                           TellingWay{"InSeries", tell_in_series}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace penstock
