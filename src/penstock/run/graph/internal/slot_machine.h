#pragma once

#include <memory>

#include "penstock/run/graph/internal/graph_program.h"

namespace penstock {

// Runs the operators of a flat graph in order, on values that lie in numbered slots and leave them
// with their last use. Null if the graph has control flow, or anything else it does not know.
std::unique_ptr<GraphProgram> make_slot_machine(const StageGraph& graph);

}  // namespace penstock
