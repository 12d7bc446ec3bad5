#include "penstock/run/capture/pipe_split.h"

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include "penstock/run/capture/split_marker.h"

namespace penstock {

using torch::jit::Graph;

c10::Symbol split_marker() {
  return c10::Symbol::fromQualString("penstock::pipe_split");
}

bool is_split_marker(torch::jit::Node* node) {
  static const c10::Symbol of_the_reference = c10::Symbol::fromQualString("pippy::_pipe_split");
  return node->kind() == split_marker() || node->kind() == of_the_reference;
}

void pipe_split() {
  const auto& state = torch::jit::tracer::getTracingState();
  if (state == nullptr) return;
  state->insertNode(state->createNode(split_marker(), 0));
}

ModuleScope::ModuleScope(std::string_view path) {
  const auto& state = torch::jit::tracer::getTracingState();
  if (state == nullptr) return;
  before_ = state->graph->current_scope();
  state->graph->set_current_scope(before_->push(c10::Symbol::scope(std::string(path))));
}

ModuleScope::~ModuleScope() {
  if (before_ == nullptr) return;
  // An exception may have ended the capture already.
  const auto& state = torch::jit::tracer::getTracingState();
  if (state != nullptr) state->graph->set_current_scope(std::move(before_));
}

}  // namespace penstock

// Passes over graphs would drop a marker that seems to do nothing, hence the conservative kind. The
// second name is the reference's own, for TorchScript files that contain it.
TORCH_LIBRARY(penstock, library) {
  library.def(torch::schema("pipe_split() -> ()", c10::AliasAnalysisKind::CONSERVATIVE), [] {});
}
TORCH_LIBRARY(pippy, library) {
  library.def(torch::schema("_pipe_split() -> ()", c10::AliasAnalysisKind::CONSERVATIVE), [] {});
}
