#include "penstock/run/capture/internal/inline_calls.h"

#include <vector>

#include <ATen/core/function.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/captured_model.h"
#include "penstock/run/capture/split_marker.h"

namespace penstock {
namespace {

namespace prim = c10::prim;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

void set_scope(Node* node, const torch::jit::ScopePtr& scope) {
  node->setScope(scope);
  for (Block* block : node->blocks()) {
    for (Node* inner : block->nodes()) set_scope(inner, scope);
  }
}

torch::jit::ScopePtr scope_of(const std::string& path) {
  auto root = c10::make_intrusive<torch::jit::Scope>();
  return path.empty() ? root : root->push(c10::Symbol::scope(path));
}

// Puts the nodes of `callee` in place of `call`; returns the first of them, or what follows.
Node* replace_by_body(Node* call, Graph& callee, at::ArrayRef<Value*> inputs,
                      const torch::jit::ScopePtr& scope) {
  Graph& graph = *call->owningGraph();
  Node* const before = call->prev();
  std::vector<Value*> outputs;
  {
    const torch::jit::WithInsertPoint here(call);
    outputs = torch::jit::insertGraph(graph, callee, inputs);
  }
  for (Node* node = before->next(); node != call; node = node->next()) set_scope(node, scope);
  for (std::size_t index = 0; index < outputs.size(); ++index) {
    call->outputs()[index]->replaceAllUsesWith(outputs[index]);
  }
  call->destroy();
  return before->next();
}

Graph& body_of(torch::jit::Function& function, Node* call) {
  auto* const graph_function = torch::jit::tryToGraphFunction(function);
  if (graph_function == nullptr) {
    throw CaptureError(fmt::format("{} calls {}, which is not TorchScript and cannot be captured",
                                   describe_node(call), quote(function.name())));
  }
  return *graph_function->graph();
}

Node* inline_method(Node* call) {
  const std::string& name = call->s(c10::attr::name);
  const auto path = attribute_path(call->input(0));
  const auto type = call->input(0)->type()->cast<c10::ClassType>();
  if (type == nullptr || (type->is_module() && !path)) {
    throw CaptureError(fmt::format(
        "{} calls the method {} of a module that is chosen while the model runs; call modules by "
        "name, or build the stages by hand with make_stage_module()",
        describe_node(call), quote(name)));
  }
  return replace_by_body(call, body_of(type->getMethod(name), call), call->inputs(),
                         path ? scope_of(*path) : call->scope());
}

Node* inline_function(Node* call) {
  const auto type = call->input(0)->type()->expect<c10::FunctionType>();
  torch::jit::Function& function = *type->function();
  if (function.name() == "pipe_split") {
    Graph& graph = *call->owningGraph();
    Node* const marker = graph.create(split_marker(), 0)->insertBefore(call);
    marker->setScope(call->scope());
    if (call->hasUses()) {  // of the None it returns
      const torch::jit::WithInsertPoint here(call);
      call->output()->replaceAllUsesWith(graph.insertConstant(c10::IValue()));
    }
    call->destroy();
    return marker;
  }
  return replace_by_body(call, body_of(function, call), call->inputs().slice(1), call->scope());
}

void inline_block(Block* block) {
  for (Node* node = *block->nodes().begin(); node != block->return_node();) {
    if (node->kind() == prim::CallMethod) {
      node = inline_method(node);
    } else if (node->kind() == prim::CallFunction) {
      node = inline_function(node);
    } else {
      for (Block* inner : node->blocks()) inline_block(inner);
      node = node->next();
    }
  }
}

}  // namespace

std::optional<std::string> attribute_path(Value* value) {
  std::string path;
  while (value->node()->kind() == prim::GetAttr) {
    const std::string& name = value->node()->s(c10::attr::name);
    path = path.empty() ? name : fmt::format("{}.{}", name, path);
    value = value->node()->input();
  }
  Graph& graph = *value->owningGraph();
  if (value->node() != graph.param_node() || value != graph.inputs()[0]) return std::nullopt;
  return path;
}

void inline_calls(Graph& graph) {
  inline_block(graph.block());
}

}  // namespace penstock
