#include "penstock/run/capture/script.h"

#include <unordered_map>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/remove_exceptions.h>
#include <torch/csrc/jit/serialization/import.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/internal/inline_calls.h"
#include "penstock/run/capture/split_marker.h"
#include "penstock/run/libtorch/newer_operators.h"

namespace penstock {
namespace {

namespace prim = c10::prim;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Turns what a graph reads from its module into inputs and constants.
class AttributeLifting {
 public:
  AttributeLifting(CapturedModel& model, const torch::jit::Module& module)
      : model_(model), module_(module) {
    for (const auto& item : module.named_parameters()) add_name(item.name, item.value, false);
    for (const auto& item : module.named_buffers()) add_name(item.name, item.value, true);
    for (const auto& item : module.named_modules()) {
      if (!item.name.empty()) model_.module_paths.push_back(item.name);
    }
  }

  void lift() {
    lift_block(model_.graph->block());
    for (const CapturedModel::Tensor& tensor : model_.tensors) {
      // Also those that the forward does not use: they are the model's.
      Value* const input = model_.graph->addInput()->setType(c10::TensorType::get());
      const auto reads = reads_.find(tensor.tensor.unsafeGetTensorImpl());
      if (reads == reads_.end()) continue;
      for (Value* read : reads->second) read->replaceAllUsesWith(input);
    }
    for (Node* node : done_) node->destroy();
  }

 private:
  void add_name(const std::string& name, const at::Tensor& tensor, bool is_buffer) {
    const auto [known, is_new] = names_.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new) {
      model_.tensors.push_back({name, tensor, is_buffer});
    } else {
      model_.aliases.push_back({name, known->second});
    }
  }

  c10::IValue value_at(const std::string& path) const {
    c10::IValue value = module_._ivalue();
    for (std::size_t begin = 0; begin < path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      value = value.toObjectRef().getAttr(path.substr(begin, end - begin));
      begin = end + 1;
    }
    return value;
  }

  void lift_block(Block* block) {
    for (Node* node : block->nodes()) {
      for (Block* inner : node->blocks()) lift_block(inner);
      if (node->kind() == prim::SetAttr) {
        throw CaptureError(fmt::format(
            "{} assigns to the attribute {} while the model runs, which stages cannot share; keep "
            "the value in a buffer and write to it in place, or build the stages by hand with "
            "make_stage_module()",
            describe_node(node), quote(node->s(c10::attr::name))));
      }
      if (node->kind() != prim::GetAttr) continue;
      const auto path = attribute_path(node->output());
      if (!path) continue;  // of an object that is no module
      const auto type = node->output()->type()->cast<c10::ClassType>();
      if (type == nullptr || !type->is_module()) replace(node, value_at(*path));
      done_.insert(done_.begin(), node);  // uses before definitions
    }
  }

  void replace(Node* read, const c10::IValue& value) {
    if (value.isTensor() && names_.contains(value.toTensor().unsafeGetTensorImpl())) {
      reads_[value.toTensor().unsafeGetTensorImpl()].push_back(read->output());
      return;
    }
    const torch::jit::WithInsertPoint here(read);
    const auto constant = torch::jit::tryInsertConstant(*model_.graph, value);
    if (!constant) {
      throw CaptureError(fmt::format(
          "{} reads the attribute {} of type {}, which cannot become part of a graph; make it a "
          "parameter, a buffer, a number or a string",
          describe_node(read), quote(read->s(c10::attr::name)), read->output()->type()->str()));
    }
    (*constant)->node()->setScope(read->scope());
    read->output()->replaceAllUsesWith(*constant);
  }

  CapturedModel& model_;
  const torch::jit::Module& module_;
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
  std::unordered_map<const c10::TensorImpl*, std::vector<Value*>> reads_;
  std::vector<Node*> done_;
};

// Decides what is decided already, such as branches on the training mode.
void simplify(std::shared_ptr<Graph>& graph) {
  torch::jit::ConstantPropagation(graph);
  torch::jit::EliminateExceptions(graph);
  torch::jit::UnrollLoops(graph);
  torch::jit::PeepholeOptimize(graph);
  torch::jit::ConstantPropagation(graph);
  torch::jit::LowerSimpleTuples(graph);
  torch::jit::EliminateDeadCode(graph);
  torch::jit::ConstantPooling(graph);
}

}  // namespace

torch::jit::Module load_script(const std::filesystem::path& path) {
  split_marker();
  define_newer_operators();
  if (std::filesystem::is_directory(path)) {
    throw CaptureError(
        fmt::format("{}: is a directory; expected a TorchScript file", path.string()));
  }
  if (!std::filesystem::is_regular_file(path)) {
    throw CaptureError(fmt::format("{}: there is no such file", path.string()));
  }
  try {
    return torch::jit::load(path.string());
  } catch (const c10::Error& error) {
    throw CaptureError(fmt::format(
        "{}: not a TorchScript file that can be read here; write one with torch.jit.script or "
        "torch.jit.trace, and save() ({})",
        path.string(), error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw CaptureError(fmt::format("{}: not a TorchScript file that can be read here ({})",
                                   path.string(), error.what()));
  }
}

CapturedModel capture_script(const torch::jit::Module& module) {
  const torch::jit::Method forward = module.get_method("forward");
  CapturedModel model;
  const auto& arguments = forward.function().getSchema().arguments();
  for (std::size_t index = 1; index < arguments.size(); ++index) {
    model.arguments.push_back(
        {.name = arguments[index].name(), .default_value = arguments[index].default_value()});
  }
  model.graph = forward.graph()->copy();
  inline_calls(*model.graph);
  AttributeLifting(model, module).lift();
  if (model.graph->inputs()[0]->hasUses()) {
    Node* const user = model.graph->inputs()[0]->uses()[0].user;
    throw CaptureError(fmt::format(
        "{} uses a module as a value, which cannot be captured; build the stages by hand with "
        "make_stage_module()",
        describe_node(user)));
  }
  model.graph->eraseInput(0);
  simplify(model.graph);
  model.graph->lint();
  return model;
}

}  // namespace penstock
