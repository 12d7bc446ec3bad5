#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/run/capture/captured_model.h"
#include "penstock/run/graph/stage_graph.h"

namespace penstock {

// A model that cannot be cut as asked.
class SplitError : public Error {
 public:
  using Error::Error;
};

// Nodes of the graph's outermost block: a stage ends before each of them.
using CutPositions = std::vector<torch::jit::Node*>;

// How a parameter gets to all of the stages that use it.
enum class MultiUse {
  Replicate,  // each stage has it, and its gradients are summed at the end of a step
  Transmit,   // the first stage that uses it sends it on with every microbatch
};

struct SplitGraphOptions {
  MultiUse multi_use = MultiUse::Replicate;
  std::map<std::string, MultiUse> multi_use_of = {};  // by parameter, before the general rule
};

// The stages of a model that is cut at its markers and at `cuts`. Positions that would leave a
// stage without an operator do not count: repeated ones, and those at either end.
//
// A value that is made in one stage and used in a later one passes through all stages between them.
// So do inputs that a late stage uses, and outputs of early ones. Nothing else is sent: constants,
// and lists of values, are made where they are used.
//
// A stage writes to no value of another: what it changes in place is copied first. Throws
// SplitError, with the operator and its module, where that cannot be done, and where something
// would have to be sent that is neither a tensor nor made of numbers.
std::vector<StageGraph> split_graph(const CapturedModel& model, const CutPositions& cuts,
                                    const SplitGraphOptions& options = {});

}  // namespace penstock
