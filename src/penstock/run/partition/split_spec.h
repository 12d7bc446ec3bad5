#pragma once

#include <map>
#include <string>

#include "penstock/run/partition/split_graph.h"

namespace penstock {

enum class SplitPoint {
  Beginning,  // a stage ends before the module
  End,        // a stage ends after it
};

// By the path of a module in the model, such as "layers.4".
using SplitSpec = std::map<std::string, SplitPoint>;

// Where a model is cut by `spec`: once for every call of the module. The operators of a module are
// found by their scopes; where a C++ model has none, by the parameters they use, which attributes
// operators without parameters to the module before them.
//
// Throws ArgumentError, with the nearest names, for a module that the model does not have, or that
// does nothing that can be seen in the graph.
CutPositions cuts_of_spec(const CapturedModel& model, const SplitSpec& spec);

}  // namespace penstock
