#include "tests/run/data_parallel/small_stages.h"

#include "penstock/plan/generators/registry.h"
#include "penstock/run/stage/make_stages.h"

namespace penstock {

torch::Tensor trained(double value) {
  return torch::full({}, value, torch::requires_grad());
}

std::shared_ptr<PipelineStage> stage_with(const Parameters& parameters,
                                          std::function<torch::Tensor(torch::Tensor)> forward,
                                          StagePosition position) {
  const auto module = std::make_shared<torch::nn::Module>();
  for (const auto& [name, tensor] : parameters) {
    module->register_parameter(name, tensor, tensor.requires_grad());
  }
  return std::make_shared<PipelineStage>(
      make_stage_module([forward](at::Tensor input) { return forward(std::move(input)); },
                        {.module = module}),
      position);
}

StageList wide_stages(int num_stages) {
  torch::manual_seed(3);
  std::vector<std::shared_ptr<StageModule>> modules;
  for (int index = 0; index < num_stages; ++index) {
    modules.push_back(make_stage_module(
        torch::nn::Sequential(torch::nn::Linear(kWidth, kWidth), torch::nn::Tanh())));
  }
  return make_stages(modules);
}

ScheduleOptions sum_options(const Replica& replica, int num_microbatches) {
  return {.num_microbatches = num_microbatches,
          .data_group = replica.group,
          .loss = [](const at::Tensor& output) { return output.sum(); },
          .scale_grads = false};
}

Schedule one_rank(int num_microbatches) {
  return make_schedule("GPipe", {.num_ranks = 1, .num_microbatches = num_microbatches});
}

}  // namespace penstock
