#include "penstock/run/capture/trace.h"

#include <algorithm>
#include <unordered_map>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/internal/operator_watch.h"
#include "penstock/run/capture/saved_state.h"
#include "penstock/run/microbatch/tree.h"

namespace penstock {
namespace {

using torch::jit::Graph;
using torch::jit::Stack;
using torch::jit::Value;

std::string parent_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

void add_tensors(CapturedModel& model, torch::nn::Module& module) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  const auto add = [&](const auto& tensors, bool is_buffer) {
    for (const auto& item : tensors) {
      const auto [known, is_new] = names.emplace(item.value().unsafeGetTensorImpl(), item.key());
      if (is_new) {
        model.tensors.push_back({item.key(), item.value(), is_buffer});
      } else {
        model.aliases.push_back({item.key(), known->second});
      }
    }
  };
  add(module.named_parameters(), false);
  add(module.named_buffers(), true);
  for (const auto& item : module.named_modules()) {
    if (!item.key().empty()) model.module_paths.push_back(item.key());
  }
}

bool is_fixed(const c10::IValue& example, const std::string& name) {
  bool has_tensors = false;
  bool has_others = false;
  for_each_leaf(example, [&](const c10::IValue& leaf) {
    const bool is_tensor = leaf.isTensor() && leaf.toTensor().defined();
    (is_tensor ? has_tensors : has_others) = true;
  });
  if (has_tensors && has_others) {
    throw CaptureError(
        fmt::format("the example input {} is {}: a mixture of tensors and other values, which "
                    "cannot be traced; "
                    "pass them as inputs of their own",
                    quote(name), describe(example)));
  }
  return !has_tensors;
}

// The example inputs in the order of the model's arguments: positional ones, then keywords.
std::vector<c10::IValue> add_arguments(CapturedModel& model,
                                       const std::vector<c10::IValue>& example_args,
                                       const TraceOptions& options) {
  if (!options.argument_names.empty() && options.argument_names.size() != example_args.size()) {
    throw ArgumentError(fmt::format(
        "there are {} for {}",
        counted(static_cast<long long>(options.argument_names.size()), "argument name",
                "argument names"),
        counted(static_cast<long long>(example_args.size()), "example input", "example inputs")));
  }
  std::vector<c10::IValue> examples;
  const auto add = [&](std::string name, const c10::IValue& example) {
    CapturedModel::Argument argument{.name = std::move(name)};
    if (is_fixed(example, argument.name)) argument.fixed_value = example;
    model.arguments.push_back(std::move(argument));
    examples.push_back(example);
  };
  for (std::size_t index = 0; index < example_args.size(); ++index) {
    add(options.argument_names.empty() ? fmt::format("input{}", index)
                                       : options.argument_names[index],
        example_args[index]);
  }
  for (const auto& [name, example] : options.example_kwargs) add(name, example);
  return examples;
}

// The value in the graph that `output` is; builds branches and constants as needed, and takes the
// graph's outputs for the tensors, in order.
Value* rebuild_output(Graph& graph, const c10::IValue& output, std::size_t& next_tensor) {
  if (output.isTensor() && output.toTensor().defined()) return graph.outputs()[next_tensor++];
  if (!is_branch(output)) return graph.insertConstant(output);
  std::vector<Value*> children;
  if (output.isGenericDict()) {
    std::vector<Value*> keys;
    for (const auto& entry : output.toGenericDict()) {
      keys.push_back(graph.insertConstant(entry.key()));
      children.push_back(rebuild_output(graph, entry.value(), next_tensor));
    }
    const auto type = output.type()->expect<c10::DictType>();
    return graph
        .insertNode(graph.createDict(type->getKeyType(), type->getValueType(), keys, children))
        ->output();
  }
  for_each_child(output, [&](const c10::IValue& child) {
    children.push_back(rebuild_output(graph, child, next_tensor));
  });
  if (output.isTuple()) {
    const auto type = output.type()->expect<c10::TupleType>();
    return graph.insertNode(graph.createTuple(children, type->schema() ? type : nullptr))->output();
  }
  const auto type = output.type()->expect<c10::ListType>();
  return graph.insertNode(graph.createList(type->getElementType(), children))->output();
}

void gather_outputs(Graph& graph, const c10::IValue& output) {
  const std::size_t num_tensors = graph.outputs().size();
  std::size_t next_tensor = 0;
  Value* const whole = rebuild_output(graph, output, next_tensor);
  for (std::size_t index = num_tensors; index > 0; --index) graph.eraseOutput(index - 1);
  graph.registerOutput(whole);
}

std::string way_out(const std::string& cause) {
  if (cause.find("requires grad as a constant") != std::string::npos) {
    return "the model uses a tensor that requires a gradient but is neither an input nor "
           "registered; "
           "register it with register_parameter() or register_module(), or pass the module that "
           "owns "
           "it along with the callable";
  }
  if (cause.find("did not have observable data dependence") != std::string::npos) {
    return "one of the model's outputs does not depend on its inputs, so there is nothing to "
           "capture "
           "of it; build the stages by hand with make_stage_module()";
  }
  return cause +
         "; try the model on the example inputs without a capture first, or build the stages "
         "by hand with make_stage_module()";
}

}  // namespace

CapturedModel trace_model(const TraceSource& source, const std::vector<c10::IValue>& example_args,
                          const TraceOptions& options) {
  CapturedModel model;
  const std::vector<c10::IValue> examples = add_arguments(model, example_args, options);
  if (source.module != nullptr) add_tensors(model, *source.module);

  Stack inputs;
  std::vector<std::string> names;
  std::vector<std::size_t> traced;  // which arguments are inputs of the trace
  std::unordered_map<const c10::TensorImpl*, std::string> owners;
  for (std::size_t index = 0; index < examples.size(); ++index) {
    if (model.arguments[index].fixed_value) continue;
    traced.push_back(index);
    inputs.push_back(examples[index]);
    names.push_back(model.arguments[index].name);
  }
  for (const CapturedModel::Tensor& tensor : model.tensors) {
    inputs.emplace_back(tensor.tensor);
    names.push_back(tensor.name);
    owners.emplace(tensor.tensor.unsafeGetTensorImpl(), parent_of(tensor.name));
  }

  c10::IValue output;
  const auto run = [&](const Stack& stack) {
    std::vector<c10::IValue> given = examples;
    for (std::size_t index = 0; index < traced.size(); ++index) given[traced[index]] = stack[index];
    const auto first_keyword = given.begin() + static_cast<std::ptrdiff_t>(example_args.size());
    KeywordArguments keywords;
    for (std::size_t index = example_args.size(); index < given.size(); ++index) {
      keywords.emplace(model.arguments[index].name, given[index]);
    }
    const OperatorWatch watch(std::move(owners));
    output = source.forward({given.begin(), first_keyword}, keywords);
    Stack tensors;
    for_each_tensor(output, [&](const at::Tensor& tensor) { tensors.emplace_back(tensor); });
    return tensors;
  };

  const SavedState saved(source.module != nullptr ? source.module->buffers()
                                                  : std::vector<at::Tensor>());
  const at::AutoGradMode with_gradients(true);
  try {
    model.graph =
        torch::jit::tracer::trace(
            inputs, run, [](const at::Tensor&) { return std::string(); }, /*strict=*/false,
            /*force_outplace=*/false, /*self=*/nullptr, names)
            .first->graph;
  } catch (const CaptureError&) {
    throw;
  } catch (const c10::Error& error) {
    throw CaptureError("cannot capture the model: " + way_out(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw CaptureError("cannot capture the model: " + way_out(error.what()));
  }
  gather_outputs(*model.graph, output);
  for (std::size_t index = 0; index < model.arguments.size(); ++index) {
    const auto& argument = model.arguments[index];
    if (argument.fixed_value) {
      model.graph->insertInput(index)->setType(argument.fixed_value->type());
    }
  }
  torch::jit::EraseShapeInformation(model.graph);
  torch::jit::EliminateDeadCode(model.graph);
  model.graph->lint();
  return model;
}

}  // namespace penstock
