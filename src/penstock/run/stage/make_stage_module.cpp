#include "penstock/run/stage/make_stage_module.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

class CallableModule final : public StageModule {
 public:
  CallableModule(StageForward forward, CallableOptions options)
      : forward_(std::move(forward)), options_(std::move(options)) {}

  c10::IValue forward(const std::vector<c10::IValue>& inputs,
                      const KeywordArguments& keywords) override {
    return forward_(inputs, keywords);
  }
  std::vector<std::string> keywords() const override { return options_.keywords; }

  NamedTensors named_parameters() const override {
    return options_.module ? items(options_.module->named_parameters()) : NamedTensors{};
  }
  NamedTensors named_buffers() const override {
    return options_.module ? items(options_.module->named_buffers()) : NamedTensors{};
  }
  void train(bool on) override {
    if (options_.module) options_.module->train(on);
  }
  void to(at::Device device) override {
    if (options_.module) options_.module->to(device);
  }

 private:
  static NamedTensors items(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
    NamedTensors list;
    for (const auto& item : tensors) list.emplace_back(item.key(), item.value());
    return list;
  }

  StageForward forward_;
  CallableOptions options_;
};

class ScriptModule final : public StageModule {
 public:
  explicit ScriptModule(const torch::jit::Module& module) : module_(module) {
    const std::shared_ptr<torch::jit::Graph> graph = module_.get_method("forward").graph()->copy();
    torch::jit::Inline(*graph);
    code_ = torch::jit::Code(graph, "forward");
  }

  c10::IValue forward(const std::vector<c10::IValue>& inputs,
                      const KeywordArguments& keywords) override {
    torch::jit::Stack stack;
    stack.reserve(inputs.size() + 1);
    stack.emplace_back(module_._ivalue());
    stack.insert(stack.end(), inputs.begin(), inputs.end());
    module_.get_method("forward").function().getSchema().checkAndNormalizeInputs(
        stack, {keywords.begin(), keywords.end()});
    torch::jit::InterpreterState(code_).run(stack);
    return std::move(stack.front());
  }

  std::vector<std::string> keywords() const override {
    std::vector<std::string> names;
    for (const c10::Argument& argument :
         module_.get_method("forward").function().getSchema().arguments()) {
      if (argument.name() != "self") names.push_back(argument.name());
    }
    return names;
  }

  NamedTensors named_parameters() const override {
    NamedTensors list;
    for (const auto& item : module_.named_parameters()) list.emplace_back(item.name, item.value);
    return list;
  }
  NamedTensors named_buffers() const override {
    NamedTensors list;
    for (const auto& item : module_.named_buffers()) list.emplace_back(item.name, item.value);
    return list;
  }
  void train(bool on) override { module_.train(on); }
  void to(at::Device device) override { module_.to(device); }

 private:
  torch::jit::Module module_;
  torch::jit::Code code_;
};

}  // namespace

std::shared_ptr<StageModule> make_callable_module(StageForward forward, CallableOptions options) {
  return std::make_shared<CallableModule>(std::move(forward), std::move(options));
}

std::shared_ptr<StageModule> make_stage_module(const torch::nn::AnyModule& module) {
  if (module.is_empty()) throw ArgumentError("there is no module in the torch::nn::AnyModule");
  const auto forward = [module = module](at::Tensor input) mutable -> at::Tensor {
    return module.forward(std::move(input));
  };
  return make_stage_module(forward, {.module = module.ptr()});
}

std::shared_ptr<StageModule> make_stage_module(const torch::jit::Module& module) {
  return std::make_shared<ScriptModule>(module);
}

void require_inputs(std::size_t expected, std::size_t found, const KeywordArguments& keywords) {
  if (!keywords.empty()) {
    throw ArgumentError(fmt::format(
        "the stage's forward takes no keyword inputs, but was given {}; name the keywords it takes "
        "in CallableOptions",
        quote(keywords.begin()->first)));
  }
  if (expected != found) {
    throw ArgumentError(fmt::format("the stage's forward takes {}, but was given {}",
                                    counted(static_cast<long long>(expected), "input", "inputs"),
                                    found));
  }
}

}  // namespace penstock
