#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/simulator/simulate.h"
#include "penstock/run/measure/profile_recorder.h"
#include "penstock/run/optimizer/make_optimizer.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/process_tuning.h"
#include "penstock/run/training/staggered_trainer.h"

// How close steps without a barrier come to what the simulator says they can be, and what the exact
// norm costs. README.md has the table.
namespace penstock {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kMicrobatches = 8;
constexpr int kWarmUpSteps = 3;
constexpr double kGoal = 0.02;  // how far the measured bubble may be from that of the span

// What ranks do in an action: they compute, which takes a core each, or hardly that and sleep,
// which shows the runtime alone, also with more ranks than cores and on a machine that is not
// quiet.
struct Workload {
  int num_ranks = 2;
  int hidden = 256;
  int rows = 512;
  std::chrono::milliseconds sleep{0};
  int num_steps = 40;
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

// When each rank begins and ends its lists, and how long it computes in each.
class ListRecorder final : public Observer {
 public:
  struct List {
    StepClock::time_point begin;
    StepClock::time_point end;
    StepClock::duration busy{};
  };

  explicit ListRecorder(int num_ranks)
      : ranks_(static_cast<std::size_t>(num_ranks)), begins_(ranks_.size()) {}

  void rank_begins(int rank) override { lists(rank).push_back({StepClock::now(), {}, {}}); }
  void rank_ends(int rank) override { lists(rank).back().end = StepClock::now(); }
  void action_begins(const ActionEvent& event) override { begins_.at(index(event)) = event.time; }
  void action_ends(const ActionEvent& event) override {
    if (!is_compute(event.action.kind) || event.is_part) return;
    lists(event.rank).back().busy += event.time - begins_.at(index(event));
  }

  // From the begin of a rank's list to that of its next one: the mean of the ranks.
  std::vector<double> periods() const {
    return by_step([](const List& list, const List& next) { return next.begin - list.begin; });
  }
  // What each rank does between two lists.
  std::vector<double> gaps() const {
    return by_step([](const List& list, const List& next) { return next.begin - list.end; });
  }
  std::vector<double> busy() const {
    return by_step([](const List& list, const List& /*next*/) { return list.busy; });
  }

 private:
  static std::size_t index(const ActionEvent& event) {
    return static_cast<std::size_t>(event.rank);
  }
  std::vector<List>& lists(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  template <typename Measure>
  std::vector<double> by_step(const Measure& measure) const {
    std::vector<double> values;
    for (std::size_t step = kWarmUpSteps; step + 1 < ranks_.front().size(); ++step) {
      double sum = 0;
      for (const auto& lists : ranks_) {
        sum += Milliseconds(measure(lists[step], lists[step + 1])).count();
      }
      values.push_back(sum / static_cast<double>(ranks_.size()));
    }
    return values;
  }

  std::vector<std::vector<List>> ranks_;
  std::vector<StepClock::time_point> begins_;  // of the actions that ranks are at
};

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return at::mse_loss(output, target);
}

StageList make_stages(int num_stages, int hidden) {
  StageList stages;
  for (int index = 0; index < num_stages; ++index) {
    torch::nn::Sequential layers(torch::nn::Linear(hidden, hidden), torch::nn::GELU());
    stages.push_back(std::make_shared<PipelineStage>(
        make_stage_module(layers), StagePosition{.index = index, .num_stages = num_stages}));
  }
  return stages;
}

std::unique_ptr<torch::optim::Optimizer> adamw(std::vector<at::Tensor> parameters) {
  return make_optimizer("adamw", std::move(parameters), {.learning_rate = 1e-4});
}

CustomFunctions sleeping(std::chrono::milliseconds time) {
  CustomFunctions functions;
  if (time == std::chrono::milliseconds::zero()) return functions;
  const auto sleep = [time](ActionContext& context) {
    context.run();
    std::this_thread::sleep_for(context.action().kind == ActionKind::FullBackward ? 2 * time
                                                                                  : time);
  };
  for (const ActionKind kind : {ActionKind::Forward, ActionKind::InputBackward,
                                ActionKind::WeightBackward, ActionKind::FullBackward}) {
    functions[kind] = sleep;
  }
  return functions;
}

// A pipeline with everything that watches it.
struct Subject {
  Subject(const std::string& schedule, const Workload& workload)
      : lists(std::make_shared<ListRecorder>(workload.num_ranks)),
        pipeline(make_pipeline(schedule, workload)),
        inputs(at::randn({workload.rows * kMicrobatches, workload.hidden})),
        targets(at::randn({workload.rows * kMicrobatches, workload.hidden})) {}

  std::unique_ptr<PipelineSchedule> make_pipeline(const std::string& schedule,
                                                  const Workload& workload) const {
    const Schedule order = make_schedule(
        schedule, {.num_ranks = workload.num_ranks, .num_microbatches = kMicrobatches});
    return std::make_unique<PipelineSchedule>(
        make_stages(extent_of(order).num_stages, workload.hidden), order,
        ScheduleOptions{.num_microbatches = kMicrobatches,
                        .loss = loss_of,
                        .custom_functions = sleeping(workload.sleep),
                        .observers = {lists, profile},
                        .intra_op_threads = 1,
                        .pins_threads = true});
  }

  StepBatch batch() const {
    return {.inputs = {inputs}, .options = {.target = targets, .return_outputs = false}};
  }
  std::vector<double> bubbles() const {
    std::vector<double> shares;
    const std::vector<double> periods = lists->periods();
    const std::vector<double> busy = lists->busy();
    for (std::size_t step = 0; step < periods.size(); ++step) {
      shares.push_back(1 - busy[step] / periods[step]);
    }
    return shares;
  }

  std::shared_ptr<ListRecorder> lists;
  std::shared_ptr<ProfileRecorder> profile =
      std::make_shared<ProfileRecorder>(ProfileOptions{.num_warm_up_steps = kWarmUpSteps});
  std::unique_ptr<PipelineSchedule> pipeline;
  at::Tensor inputs;
  at::Tensor targets;
};

void train_with_barrier(Subject& subject, int num_steps) {
  const auto optimizer = adamw(subject.pipeline->parameters());
  for (int step = 0; step < num_steps; ++step) {
    StepBatch batch = subject.batch();
    subject.pipeline->step(std::move(batch.inputs), batch.options);
    if (clip_grad_norm(*subject.pipeline, kNoLimit).is_finite()) optimizer->step();
    for (const at::Tensor& parameter : subject.pipeline->parameters()) {
      parameter.mutable_grad().reset();
    }
  }
}

void train_staggered(Subject& subject, int num_steps) {
  StaggeredTrainer trainer(*subject.pipeline, adamw);
  trainer.run(
      {.count = num_steps, .batch = [&](std::int64_t /*step*/) { return subject.batch(); }});
}

void compare(const std::string& schedule, const Workload& workload) {
  const int num_steps = kWarmUpSteps + workload.num_steps + 1;
  Subject barrier(schedule, workload);
  train_with_barrier(barrier, num_steps);
  Subject staggered(schedule, workload);
  train_staggered(staggered, num_steps);
  const CostModel costs = staggered.profile->profile(staggered.pipeline->stages()).costs;
  const Timeline expected = simulate(staggered.pipeline->program(), costs);
  const double period = median(staggered.lists->periods());
  const std::vector<double> bubbles = staggered.bubbles();
  const double above = median(bubbles) - expected.span_bubble;
  fmt::print(
      "{:<13} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}  {:>8.2f} {:>6.2f}  {:>7.2f} {:>6.2f} "
      "({:.2f} to {:.2f})  {:>5.2f} {:>3}  {:>5.2f}\n",
      schedule, Milliseconds(expected.makespan).count(), median(barrier.lists->periods()),
      Milliseconds(expected.longest_span).count(), period, 100 * expected.makespan_bubble,
      100 * expected.span_bubble, 100 * median(barrier.bubbles()), 100 * median(bubbles),
      100 * quantile(bubbles, 0.25), 100 * quantile(bubbles, 0.75), 100 * above,
      std::abs(above) <= kGoal ? "yes" : "no", 100 * median(staggered.lists->gaps()) / period);
}

// Steps that are taken back, against steps that are not.
void measure_rollback() {
  Subject subject("ZBVZeroBubble", {});
  StaggeredTrainer trainer(*subject.pipeline, adamw);
  const auto seconds = [&](int bad_step) {
    const auto begin = StepClock::now();
    trainer.run({.count = 10, .batch = [&](std::int64_t step) {
                   StepBatch batch = subject.batch();
                   if (step == bad_step) {
                     batch.options.target =
                         at::full_like(subject.targets, std::numeric_limits<double>::quiet_NaN());
                   }
                   return batch;
                 }});
    return Milliseconds(StepClock::now() - begin).count();
  };
  seconds(-1);
  std::vector<double> healthy;
  std::vector<double> rolled_back;
  for (int round = 0; round < 5; ++round) {
    healthy.push_back(seconds(-1));
    rolled_back.push_back(seconds(5));
  }
  fmt::print("\na step that is taken back costs {:.1f} ms more; a step takes {:.1f} ms\n",
             median(rolled_back) - median(healthy), median(healthy) / 10);
}

// Of this thread: what others do on the machine does not count.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void measure_norm(const char* name, at::ScalarType type) {
  constexpr std::int64_t kElements = 1 << 22;
  const at::Tensor values = at::randn({kElements}).to(type);
  std::vector<double> times;
  for (int round = 0; round < 15; ++round) {
    const double begin = processor_seconds();
    SquareSum sum;
    sum.add(values);
    times.push_back(1e9 * (processor_seconds() - begin) / kElements);
    if (!(sum.norm() > 0)) std::abort();
  }
  fmt::print("{:<9} {:>5.2f}\n", name, median(times));
}

void compare_all(const Workload& workload) {
  fmt::print(
      "              ms per step, barrier      staggered  simulated bubble  measured bubble      "
      "      staggered   update\n"
      "schedule      makespan measured     span measured  makespan   span  barrier staggered     "
      "       - span <= {:.0f}     %\n",
      100 * kGoal);
  for (const char* schedule : {"ZBVZeroBubble", "ZB-H2", "1F1B"}) compare(schedule, workload);
}

int run() {
  at::manual_seed(1);
  at::set_num_threads(1);
  use_one_blas_thread();
  keep_freed_memory();
  const Workload computing;
  fmt::print("{} ranks that compute, {} microbatches of {} rows, hidden {}; medians of {} steps\n",
             computing.num_ranks, kMicrobatches, computing.rows, computing.hidden,
             computing.num_steps);
  compare_all(computing);
  const Workload sleeping{.num_ranks = 4,
                          .hidden = 16,
                          .rows = 4,
                          .sleep = std::chrono::milliseconds(4),
                          .num_steps = 20};
  fmt::print("\n{} ranks that sleep {} ms in F, I and W, {} microbatches; medians of {} steps\n",
             sleeping.num_ranks, sleeping.sleep.count(), kMicrobatches, sleeping.num_steps);
  compare_all(sleeping);
  measure_rollback();
  fmt::print("\nexact sum of squares, ns per element\n");
  measure_norm("float", at::kFloat);
  measure_norm("double", at::kDouble);
  measure_norm("half", at::kHalf);
  measure_norm("bfloat16", at::kBFloat16);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace penstock

int main() {
  return penstock::run();
}
