#include "penstock/run/graph/internal/graph_program.h"

#include "penstock/run/graph/internal/interpreter_program.h"
#include "penstock/run/graph/internal/slot_machine.h"

namespace penstock {

std::unique_ptr<GraphProgram> make_program(const StageGraph& graph) {
  if (std::unique_ptr<GraphProgram> machine = make_slot_machine(graph)) return machine;
  return make_interpreter_program(graph);
}

}  // namespace penstock
