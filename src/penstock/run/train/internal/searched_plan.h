#pragma once

#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/plan/simulator/cost_model.h"
#include "penstock/run/partition/split_policy.h"
#include "penstock/run/train/pipeline_plan.h"

namespace penstock {

struct SearchedPlan {
  Schedule schedule;
  CutPositions cuts;
  std::string remark;
};

// The plan of the schedule "search", as make_plan() has it.
SearchedPlan search_plan(const RunModel& model, const PlanRequest& request,
                         const LossFunction& loss, const Batch& batch);

// What the pieces of a model cost, corrected by what its stages were `measured` to cost in a
// pipeline. The pieces of a stage share its time as they did when each was measured by itself. The
// loss belongs to none of them: what the last stage takes beyond what its pieces should, as those
// of the other stages did, is left with the last piece, and stays in the last stage.
std::vector<LayerCost> corrected_costs(const PolicyReport& balance, const CostModel& measured);

}  // namespace penstock
