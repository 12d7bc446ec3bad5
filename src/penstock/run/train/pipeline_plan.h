#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/executor/loss_function.h"
#include "penstock/run/partition/split_graph.h"
#include "penstock/run/train/dataset.h"
#include "penstock/run/train/run_model.h"

namespace penstock {

// Who does what when a model is trained.
struct PipelinePlan {
  std::string name;       // of the schedule, for people
  Schedule schedule;      // a compute order or a program
  std::vector<int> cuts;  // positions in the graph of the model, before which a stage begins
  std::string remark;     // how it was chosen, for people: lines, or nothing

  int num_stages() const { return static_cast<int>(cuts.size()) + 1; }
};

struct PlanRequest {
  // The name of a built-in schedule, "search", or what to call `custom`.
  std::string schedule = "1F1B";
  std::optional<Schedule> custom = std::nullopt;
  int num_ranks = 2;
  int num_microbatches = 8;
  int stages_per_rank = 0;  // 0: as the schedule has it
  // Hears what a search is doing, a line at a time, for people; may be empty.
  std::function<void(const std::string& line)> tell = {};
};

// Chooses the order, and cuts the model into stages that take about the same time. Microbatches are
// numbered in the order in which gradients are added, so that results do not depend on the schedule
// (see renumber_microbatches()).
//
// "search" trains a few steps on `batch` with ranks as threads and measures what the stages cost,
// with one stage per rank and with two. If that shows them to be uneven, as with a costly loss, it
// cuts the model anew and measures again; then it looks for the order that such costs ask for.
// Parameters, gradients, buffers and random generators are left as they were.
//
// Throws ArgumentError if the request makes no schedule, SplitError if the model has too few places
// to be cut.
PipelinePlan make_plan(const RunModel& model, const PlanRequest& request, const LossFunction& loss,
                       const Batch& batch);

// The positions of a plan in the graph of a model that was captured alike.
CutPositions cut_positions(const CapturedModel& model, const std::vector<int>& cuts);

// One forward per stage and microbatch, and nothing else: what evaluates a model that is placed as
// in `schedule`.
Schedule forward_order(const Schedule& schedule, int num_microbatches);

// As text and back, to tell other processes.
std::string write_plan(const PipelinePlan& plan);
PipelinePlan read_plan(const std::string& text);

}  // namespace penstock
