#include "tests/run/support/replica_training.h"

#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "penstock/run/data_parallel/sharded_parameters.h"

namespace penstock {

std::string to_string(Spread spread) {
  switch (spread) {
    case Spread::Replicated:
      return "Replicated";
    case Spread::Sharded:
      return "Sharded";
    case Spread::Mixed:
      return "Mixed";
  }
  return {};
}

void spread_stages(const StageList& stages, Spread spread, ReplicaPosition replica) {
  for (const auto& stage : stages) {
    const bool is_sharded =
        spread == Spread::Sharded || (spread == Spread::Mixed && stage->index() % 2 == 1);
    // Small buckets, so that there are several.
    if (is_sharded) shard_stage(*stage, replica, {.bucket_bytes = 500});
  }
}

NamedTensors whole_parameters(const StageList& stages) {
  NamedTensors all;
  for (const auto& stage : stages) {
    ShardedParameters* sharded = sharded_parameters_of(*stage);
    const NamedTensors own =
        sharded != nullptr ? sharded->gather_parameters() : stage->module().named_parameters();
    for (const auto& [name, tensor] : own) {
      all.emplace_back(fmt::format("{}.{}", stage->index(), name), tensor.detach());
    }
  }
  return all;
}

std::vector<int> weight_gradient_order(const Schedule& order, int stage) {
  std::vector<int> microbatches;
  for (const auto& actions : order.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (part.stage == stage && makes_weight_gradient(part.kind)) {
          microbatches.push_back(part.microbatch);
        }
      });
    }
  }
  return microbatches;
}

void accumulate_like_replicas(const TestModel& model, const Blocks& blocks,
                              const ReplicaShape& shape, const std::vector<int>& order,
                              const torch::Tensor& inputs, const torch::Tensor& targets) {
  const int count = shape.num_replicas * shape.num_microbatches;
  const std::vector<torch::Tensor> input_parts = torch::tensor_split(inputs, count);
  const std::vector<torch::Tensor> target_parts = torch::tensor_split(targets, count);
  const std::vector<torch::Tensor> parameters = parameters_of(blocks);
  std::vector<torch::Tensor> earlier;
  for (const torch::Tensor& parameter : parameters) earlier.push_back(parameter.grad());
  std::vector<torch::Tensor> sums(parameters.size());
  for (int replica = 0; replica < shape.num_replicas; ++replica) {
    for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    for (const int microbatch : order) {
      const auto index = static_cast<std::size_t>(replica * shape.num_microbatches + microbatch);
      torch::Tensor hidden = input_parts[index];
      for (const auto& block : blocks) hidden = block->forward(hidden);
      const torch::Tensor loss = model.loss(hidden, target_parts[index]);
      loss.backward(torch::full_like(loss, 1.0 / count));
    }
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const torch::Tensor gradient = parameters[index].grad();
      if (!gradient.defined()) continue;
      sums[index] = sums[index].defined() ? sums[index] + gradient : gradient.clone();
    }
  }
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    parameters[index].mutable_grad() = earlier[index].defined() && sums[index].defined()
                                           ? earlier[index] + sums[index]
                                           : (sums[index].defined() ? sums[index] : earlier[index]);
  }
}

torch::optim::AdamW make_adam(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
}

int rows_of_step(const ReplicaShape& shape, int step) {
  return 2 * shape.num_replicas * shape.num_microbatches + step % 2;
}

NamedTensors train_by_ruler(const TestModel& model, const Schedule& order,
                            const ReplicaShape& shape) {
  const Blocks blocks = model.make(extent_of(order).num_stages);
  torch::optim::AdamW optimizer = make_adam(parameters_of(blocks));
  for (int step = 0; step < 5; ++step) {
    const int rows = rows_of_step(shape, step);
    accumulate_like_replicas(model, blocks, shape, weight_gradient_order(order, 0),
                             model.make_inputs(rows), model.make_targets(rows));
    optimizer.step();
    optimizer.zero_grad();
  }
  return whole_parameters(make_stages(blocks));
}

}  // namespace penstock
