#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/plan/balance/balance.h"
#include "penstock/run/microbatch/microbatch.h"
#include "penstock/run/partition/split_graph.h"

namespace penstock {

// Decides where a captured model is cut. Gets the inputs it was captured with, or those that were
// given along with a script, for policies that run the model.
using SplitPolicy =
    std::function<CutPositions(const CapturedModel& model, const Microbatch& example)>;

// What a policy has decided, for people: the pieces it could choose from, and the stages they make.
struct PolicyReport {
  std::vector<LayerCost> pieces;
  std::vector<BalancedStage> stages;
};

// A table with one row per stage: its modules, share of the costs, and parameters.
std::string to_string(const PolicyReport& report);

// Stages with parameters of about the same size; the largest is as small as it can be.
SplitPolicy split_by_parameters(int num_stages, std::shared_ptr<PolicyReport> report = nullptr);

// Stages that take about the same time; the slowest is as fast as it can be. Runs the model piece
// by piece on the example, forward and backward, `num_runs` times, and takes the medians. Needs
// example inputs, and leaves gradients, buffers and the random generator as they were.
struct TimePolicyOptions {
  int num_runs = 5;
};
SplitPolicy split_by_time(int num_stages, std::shared_ptr<PolicyReport> report = nullptr,
                          const TimePolicyOptions& options = {});

// As split_by_time(), but with costs that are known: those of the pieces in the report of another
// policy for the same model and number of stages, perhaps with other times.
SplitPolicy split_by_costs(int num_stages, std::vector<LayerCost> pieces,
                           std::shared_ptr<PolicyReport> report = nullptr);

}  // namespace penstock
