#pragma once

#include <memory>
#include <span>

#include <ATen/core/ivalue.h>

#include "penstock/run/graph/stage_graph.h"

namespace penstock {

// A graph that is ready to run. Used by one thread at a time.
class GraphProgram {
 public:
  GraphProgram() = default;
  GraphProgram(const GraphProgram&) = delete;
  GraphProgram& operator=(const GraphProgram&) = delete;
  GraphProgram(GraphProgram&&) = delete;
  GraphProgram& operator=(GraphProgram&&) = delete;
  virtual ~GraphProgram() = default;

  // Returns the output of the graph. There are as many inputs as it takes of each kind; the tensors
  // between them are known. Throws GraphError if an operator fails.
  virtual c10::IValue run(std::span<const c10::IValue> values,
                          std::span<const c10::IValue> shared) = 0;
};

// The cheaper slot machine where the graph allows it, else libtorch's interpreter. `graph` must
// outlive the program, and is not to be changed meanwhile.
std::unique_ptr<GraphProgram> make_program(const StageGraph& graph);

}  // namespace penstock
