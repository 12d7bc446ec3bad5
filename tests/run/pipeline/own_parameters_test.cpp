#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/make_stages.h"
#include "tests/run/support/message_of.h"

// Hand-made stages that have a parameter in common.
namespace penstock {
namespace {

// Two layers with one weight.
class TiedLayer final : public torch::nn::Module {
 public:
  explicit TiedLayer(const torch::Tensor& weight)
      : weight_(register_parameter("weight", weight, weight.requires_grad())) {}
  torch::Tensor forward(const torch::Tensor& hidden) { return hidden.mm(weight_).tanh(); }

 private:
  torch::Tensor weight_;
};

StageList tied_stages(const torch::Tensor& weight) {
  return make_stages(std::make_shared<TiedLayer>(weight), std::make_shared<TiedLayer>(weight));
}

ScheduleOptions options_of(int num_ranks) {
  return {.num_microbatches = 8, .num_ranks = num_ranks, .loss = [](const torch::Tensor& output) {
            return output.square().mean();
          }};
}

TEST(StagesWithOneParameter, AreRefusedOnTwoRanks) {
  const torch::Tensor weight = torch::randn({4, 4}, torch::requires_grad());
  EXPECT_EQ(
      message_of([&] { Schedule1F1B(tied_stages(weight), options_of(2)); }),
      "stage 0 on rank 0 and stage 1 on rank 1 both train the parameter \"weight\", and which "
      "of them adds to its gradient first would be a matter of timing; take all stages from "
      "one Pipe, which knows what they share, or put these stages on one rank");
}

TEST(StagesWithOneParameter, TrainItTheSameWayEachTimeOnOneRank) {
  torch::manual_seed(1);
  const torch::Tensor start = torch::randn({16, 16});
  const torch::Tensor inputs = torch::randn({32, 16});
  std::vector<torch::Tensor> gradients;
  for (int run = 0; run < 10; ++run) {
    const torch::Tensor weight = start.clone().requires_grad_();
    ScheduleInterleaved1F1B pipeline(tied_stages(weight), options_of(1));
    pipeline.step({inputs});
    gradients.push_back(weight.grad());
    EXPECT_TRUE(torch::equal(gradients.front(), gradients.back())) << "run " << run;
    EXPECT_EQ(pipeline.parameters().size(), 1U);
  }
  const torch::Tensor whole = start.clone().requires_grad_();
  inputs.mm(whole).tanh().mm(whole).tanh().square().mean().backward();
  EXPECT_TRUE(torch::allclose(gradients.front(), whole.grad()));
}

TEST(StagesWithOneParameter, AreWelcomeOnTwoRanksIfNothingTrainsIt) {
  const torch::Tensor inputs = torch::randn({8, 4});
  const torch::Tensor trained = torch::randn({4, 4}, torch::requires_grad());
  Schedule1F1B without_loss(tied_stages(trained), {.num_microbatches = 8});
  EXPECT_EQ(without_loss.eval({inputs}).output.toTensor().size(0), 8);
  Schedule1F1B frozen(tied_stages(torch::randn({4, 4})), options_of(2));
  EXPECT_EQ(frozen.eval({inputs}).losses.size(), 8U);
}

TEST(StagesWithOneParameter, AreRefusedInReplicas) {
  EXPECT_EQ(message_of([] {
              PipelineReplicas replicas(2, [](const Replica& replica) {
                const torch::Tensor weight = torch::ones({4, 4}, torch::requires_grad());
                ScheduleOptions own = options_of(1);
                own.data_group = replica.group;
                return std::make_unique<ScheduleInterleaved1F1B>(tied_stages(weight), own);
              });
            }),
            "stage 0 on rank 0 and stage 1 on rank 0 both train the parameter \"weight\", and "
            "replicas would add up its gradient for each of them; take all stages from one Pipe, "
            "which knows what they share");
}

}  // namespace
}  // namespace penstock
