#include "penstock/run/pipe/pipe_sequential.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/plan/balance/balance.h"

namespace penstock {
namespace {

struct Child {
  std::string name;
  torch::nn::AnyModule module;
};

// Owns the modules of a stage under their names in the model.
class Children final : public torch::nn::Module {
 public:
  void add(const Child& child) { register_module(child.name, child.module.ptr()); }
};

std::shared_ptr<StageModule> make_stage(std::vector<Child> children) {
  auto owner = std::make_shared<Children>();
  for (const Child& child : children) owner->add(child);
  return make_stage_module(
      [children = std::move(children)](at::Tensor hidden) mutable {
        for (Child& child : children) hidden = child.module.forward(hidden);
        return hidden;
      },
      {.module = owner});
}

Pipe make_pipe(const std::vector<Child>& children, const PipeSequentialOptions& options) {
  const int num_children = static_cast<int>(children.size());
  if (children.empty()) throw ArgumentError("a pipe needs at least one module");
  if (options.num_stages < 0 || options.num_stages > num_children) {
    throw ArgumentError(fmt::format("{} cannot be made of {}",
                                    counted(options.num_stages, "stage", "stages"),
                                    counted(num_children, "module", "modules")));
  }
  std::vector<LayerCost> costs;
  for (const Child& child : children) {
    LayerCost cost{.name = child.name};
    for (const at::Tensor& parameter : child.module.ptr()->parameters()) {
      cost.bytes += static_cast<std::int64_t>(parameter.nbytes());
    }
    cost.forward = Duration(cost.bytes);
    costs.push_back(std::move(cost));
  }
  const int num_stages = options.num_stages == 0 ? num_children : options.num_stages;
  std::vector<std::shared_ptr<StageModule>> stages;
  for (const BalancedStage& stage : balance_layers(costs, {.num_stages = num_stages})) {
    std::vector<Child> own;
    for (int index = stage.first_layer; index < stage.end_layer; ++index) {
      own.push_back(children[static_cast<std::size_t>(index)]);
    }
    stages.push_back(make_stage(std::move(own)));
  }
  return Pipe(std::move(stages));
}

}  // namespace

Pipe pipe_sequential(const torch::nn::Sequential& model, const PipeSequentialOptions& options) {
  const std::vector<std::string> names = model->named_children().keys();
  std::vector<Child> children;
  for (const torch::nn::AnyModule& module : *model) {
    children.push_back({names[children.size()], module});
  }
  return make_pipe(children, options);
}

Pipe pipe_sequential(std::vector<torch::nn::AnyModule> modules,
                     const PipeSequentialOptions& options) {
  std::vector<Child> children;
  children.reserve(modules.size());
  for (torch::nn::AnyModule& module : modules) {
    children.push_back({std::to_string(children.size()), std::move(module)});
  }
  return make_pipe(children, options);
}

}  // namespace penstock
