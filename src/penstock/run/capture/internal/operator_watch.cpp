#include "penstock/run/capture/internal/operator_watch.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include "penstock/run/capture/captured_model.h"
#include "penstock/run/capture/internal/no_gradients.h"

namespace penstock {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): the dispatcher calls
// functions
thread_local OperatorWatch* current_watch = nullptr;

bool reads_a_value(std::string_view name) {
  constexpr std::array<std::string_view, 3> kReaders = {"aten::item", "aten::_local_scalar_dense",
                                                        "aten::is_nonzero"};
  return std::find(kReaders.begin(), kReaders.end(), name) != kReaders.end();
}

std::string current_path(torch::jit::Graph& graph) {
  torch::jit::Node* probe = graph.create(c10::prim::Constant, 0);
  std::string path = module_path_of(probe);
  probe->destroy();
  return path;
}

}  // namespace

OperatorWatch::OperatorWatch(std::unordered_map<const c10::TensorImpl*, std::string> owners)
    : owners_(std::move(owners)), before_(current_watch), is_watching_(kKey) {
  current_watch = this;
}

OperatorWatch::~OperatorWatch() {
  current_watch = before_;
}

void OperatorWatch::call(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  // What an operator calls inside is its own business.
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kKey);
  if (current_watch != nullptr) current_watch->see(operation, *stack);
  const auto& state = torch::jit::tracer::getTracingState();
  std::optional<torch::jit::WithCurrentScope> scope;
  if (state != nullptr && !c10::GradMode::is_enabled()) {
    scope.emplace(*state->graph, state->graph->current_scope()->push(no_gradients_scope()));
  }
  operation.callBoxed(stack);
}

void OperatorWatch::see(const c10::OperatorHandle& operation, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = operation.schema();
  for (std::size_t back = 0; back < schema.arguments().size(); ++back) {
    const c10::IValue& value = stack[stack.size() - 1 - back];
    if (!value.isTensor()) continue;
    const auto owner = owners_.find(value.toTensor().unsafeGetTensorImpl());
    if (owner != owners_.end()) last_owner_ = owner->second;
  }
  if (!reads_a_value(schema.name())) return;
  throw CaptureError(fmt::format(
      "the model reads the value of a tensor with {}{}, so what it does may differ from input to "
      "input, and one graph cannot hold that; write that part as TorchScript, or build the stages "
      "by hand with make_stage_module()",
      schema.name(), place()));
}

std::string OperatorWatch::place() const {
  const auto& state = torch::jit::tracer::getTracingState();
  const std::string path = state != nullptr ? current_path(*state->graph) : "";
  if (!path.empty()) return " in " + path;
  return last_owner_.empty() ? "" : " after the parameters of " + last_owner_;
}

}  // namespace penstock

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&penstock::OperatorWatch::call>());
}
