#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/profile.h"
#include "penstock/plan/simulator/timeline.h"
#include "penstock/run/autograd/backward_graph.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// The workload: every stage is `layers` times Linear(hidden, hidden) and GELU, every microbatch has
// `rows` rows, the loss is a mean squared error, and there is no optimizer.
struct StepBenchmarkOptions {
  std::string schedule = "1F1B";
  int num_ranks = 2;
  int stages_per_rank = 0;  // 0: as the schedule has it
  int num_microbatches = 16;
  int hidden = 64;
  int rows = 4;
  int layers = 1;
  int num_steps = 50;
  WeightGradients weight_gradients = WeightGradients::Exact;
  bool pins_threads = false;
  // How long a rank may be without progress. Rank 0 lets the others wait while it measures the
  // rest.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
};

// With the number of stages per rank filled in. Throws ArgumentError on counts below one, and on
// schedules that do not exist, do not fit or do not train.
StepBenchmarkOptions resolve(StepBenchmarkOptions options);

// Seconds, median and best.
struct StepTime {
  double median = 0;
  double best = 0;
};

struct StepBenchmark {
  StepBenchmarkOptions options;  // with the number of stages per rank filled in
  int num_actions = 0;           // of all ranks, in one step

  StepTime step;       // of the pipeline
  StepTime baseline;   // one thread, no pipeline, the same microbatches one after the other
  StepTime two_cores;  // two threads, each with half of the baseline's work and nothing to wait for
  double ideal_bubble = 0;  // of the schedule, if F, I and W take equally long

  // The least time that the schedule can take here, given what two cores can do.
  double bound() const { return two_cores.median / (1 - ideal_bubble); }
  double best_bound() const { return two_cores.best / (1 - ideal_bubble); }

  // One more step, watched: what it did, and what its stages cost. Only if all ranks are threads.
  Schedule program;
  Timeline timeline;
  Duration wall_time{};
  Profile profile;
};

// Measures the three by turns, so that a busy machine disturbs them alike. `progress` is told the
// share that is done. Throws what resolve() does.
//
// With a `group`, ranks are processes, which all call this with the same options. Rank 0 measures,
// from the end of one step of its own to the end of the next; the result of the others has no
// times.
StepBenchmark run_step_benchmark(const StepBenchmarkOptions& options,
                                 const std::function<void(double done)>& progress = {},
                                 const std::shared_ptr<RankGroup>& group = nullptr);

}  // namespace penstock
