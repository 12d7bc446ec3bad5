#include "penstock/run/capture/captured_model.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/run/capture/internal/no_gradients.h"

namespace penstock {
namespace {

template <typename Visit>
void for_each_scope(torch::jit::Node* node, const Visit& visit) {
  if (node->scope() == nullptr) return;
  for (torch::jit::ScopePtr scope = node->scope(); !scope->isRoot(); scope = scope->parent()) {
    visit(scope->name());
  }
}

}  // namespace

c10::Symbol no_gradients_scope() {
  return c10::Symbol::scope("without gradients");
}

std::string module_path_of(torch::jit::Node* node) {
  std::string path;
  for_each_scope(node, [&path](c10::Symbol name) {
    if (name == no_gradients_scope()) return;
    path = path.empty() ? name.toUnqualString() : fmt::format("{}.{}", name.toUnqualString(), path);
  });
  return path;
}

bool is_without_gradients(torch::jit::Node* node) {
  bool is_without = false;
  for_each_scope(node, [&](c10::Symbol name) { is_without |= name == no_gradients_scope(); });
  return is_without;
}

std::string describe_node(torch::jit::Node* node) {
  const std::string path = module_path_of(node);
  const char* kind = node->kind().toQualString();
  return path.empty() ? std::string(kind) : fmt::format("{} in {}", kind, path);
}

}  // namespace penstock
