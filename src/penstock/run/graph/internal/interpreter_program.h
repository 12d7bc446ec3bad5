#pragma once

#include <memory>

#include "penstock/run/graph/internal/graph_program.h"

namespace penstock {

// Runs any graph in libtorch's plain interpreter.
std::unique_ptr<GraphProgram> make_interpreter_program(const StageGraph& graph);

}  // namespace penstock
