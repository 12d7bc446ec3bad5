#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/plan/report/report_entry.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/plan/simulator/timeline.h"
#include "penstock/run/train/trainer.h"

namespace penstock {

// What one rank has in memory, of the first replica.
struct RankMemory {
  std::vector<int> stages;
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t activation_bytes = 0;  // the most that microbatches keep at a time
  std::int64_t gathered_bytes = 0;    // the most that sharded stages need at a time to be whole

  std::int64_t peak_bytes() const {
    return parameter_bytes + gradient_bytes + optimizer_bytes + activation_bytes + gathered_bytes;
  }
};

// How a run went, of all its ranks.
struct RunFigures {
  std::string schedule;  // its name
  Schedule program;
  CostModel costs;     // of the stages, measured
  Timeline measured;   // the last step
  Timeline predicted;  // the same program with these costs, and nothing that disturbs it
  Duration step{};     // the median time of a step in the pipeline, without data and optimizer
  std::vector<RankMemory> ranks;

  // What the schedule allows with such stages, as a share of what was reached.
  double efficiency() const {
    return static_cast<double>(predicted.makespan.count()) / static_cast<double>(step.count());
  }
};

// To be called by all processes of a run, after a step; gives all of them the same.
RunFigures gather_figures(const RunPipeline& pipeline, const torch::optim::Optimizer& optimizer);

// The measured timeline next to the predicted one, for write_html_report().
std::vector<ReportEntry> report_entries(const RunFigures& figures);

}  // namespace penstock
