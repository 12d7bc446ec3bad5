#include "tests/run/support/baseline.h"

#include <gtest/gtest.h>

namespace penstock {

TrainedStep train_without_pipeline(const TestModel& model, const Blocks& blocks,
                                   const torch::Tensor& inputs, const torch::Tensor& targets,
                                   const std::vector<int>& order, BaselineWeights weights) {
  const auto count = static_cast<std::int64_t>(order.size());
  const std::vector<torch::Tensor> input_parts = torch::tensor_split(inputs, count);
  const std::vector<torch::Tensor> target_parts = torch::tensor_split(targets, count);
  std::vector<torch::Tensor> outputs(order.size());
  TrainedStep step;
  step.losses.resize(order.size());
  for (const int microbatch : order) {
    const auto index = static_cast<std::size_t>(microbatch);
    torch::Tensor hidden = input_parts[index];
    for (const auto& block : blocks) hidden = block->forward(hidden);
    const torch::Tensor loss = model.loss(hidden, target_parts[index]);
    const double weight = weights == BaselineWeights::Equal
                              ? 1.0 / static_cast<double>(count)
                              : static_cast<double>(target_parts[index].size(0)) /
                                    static_cast<double>(targets.size(0));
    loss.backward(torch::full_like(loss, weight));
    outputs[index] = hidden.detach();
    step.losses[index] = loss.detach();
  }
  step.output = torch::cat(outputs);
  step.gradients = gradients_of(parameters_of(blocks));
  return step;
}

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
  }
  return gradients;
}

void expect_equal(const std::vector<torch::Tensor>& found,
                  const std::vector<torch::Tensor>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t index = 0; index < found.size(); ++index) {
    ASSERT_EQ(found[index].defined(), expected[index].defined()) << what << " " << index;
    if (!found[index].defined()) continue;
    EXPECT_TRUE(torch::equal(found[index], expected[index]))
        << what << " " << index << " differ by at most "
        << (found[index] - expected[index]).abs().max().item<double>();
  }
}

}  // namespace penstock
