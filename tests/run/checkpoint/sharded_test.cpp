#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/checkpoint_reader.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/checkpoint/state_values.h"
#include "tests/run/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using penstock::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Parameters with two names, in another order of memory, frozen, without gradient and too small for
// every replica to have a part; and buffers.
struct OddNet final : torch::nn::Module {
  explicit OddNet(std::uint64_t seed) {
    torch::manual_seed(seed);
    first = register_module("first", torch::nn::Linear(3, 5));
    register_module("twin", first);
    turned = register_parameter("turned", torch::randn({7, 5}).t());
    frozen = register_parameter("frozen", torch::randn({3}), /*requires_grad=*/false);
    unused = register_parameter("unused", torch::randn({4}));
    scale = register_parameter("scale", torch::randn({1}));
    norm = register_module("norm", torch::nn::BatchNorm1d(7));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return norm(torch::relu(first(x + frozen)).matmul(turned)) * scale;
  }

  torch::nn::Linear first = nullptr;
  torch::Tensor turned;
  torch::Tensor frozen;
  torch::Tensor unused;
  torch::Tensor scale;
  torch::nn::BatchNorm1d norm = nullptr;
};

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

std::unique_ptr<torch::optim::Optimizer> make_adamw(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(0.02).amsgrad(true));
}
std::unique_ptr<torch::optim::Optimizer> make_momentum(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.02).momentum(0.9));
}

// Replicas of one stage, which is sharded, and their optimizers.
class ShardedNets {
 public:
  ShardedNets(int count, std::uint64_t seed, const MakeOptimizer& make)
      : replicas_(count, [seed](const Replica& replica) {
          auto stage = std::make_shared<PipelineStage>(
              make_stage_module(std::make_shared<OddNet>(seed)), StagePosition{});
          shard_stage(*stage, {replica.index, replica.count});
          return std::make_unique<PipelineSchedule>(
              StageList{stage}, make_schedule("GPipe", {.num_ranks = 1, .num_microbatches = 1}),
              ScheduleOptions{
                  .num_microbatches = 1,
                  .data_group = replica.group,
                  .loss = [](const torch::Tensor& output) { return output.square().mean(); }});
        }) {
    for (int replica = 0; replica < count; ++replica) {
      optimizers_.push_back(make(replicas_.replica(replica).parameters()));
    }
  }

  void train(int num_steps) {
    torch::manual_seed(8);
    for (int step = 0; step < num_steps; ++step) {
      for (const auto& optimizer : optimizers_) optimizer->zero_grad();
      replicas_.step({torch::randn({4 * replicas_.num_replicas(), 3})});
      for (const auto& optimizer : optimizers_) optimizer->step();
    }
  }

  // To be saved.
  std::vector<GatheredState> states() {
    std::vector<GatheredState> states(optimizers_.size());
    replicas_.run([&](int replica) {
      states[static_cast<std::size_t>(replica)] = gather(
          state_of_replica(replica, replica == 0 ? StageTensors::All : StageTensors::Parameters));
    });
    return states;
  }

  TrainingPosition load(const std::filesystem::path& path) {
    TrainingPosition position;
    for (int replica = 0; replica < replicas_.num_replicas(); ++replica) {
      position = load_checkpoint(path, {state_of_replica(replica, StageTensors::All)},
                                 {.needs_all = true});
    }
    return position;
  }

 private:
  RankState state_of_replica(int replica, StageTensors tensors) {
    return rank_state(replicas_.replica(replica).stages(),
                      optimizers_[static_cast<std::size_t>(replica)].get(), tensors);
  }

  PipelineReplicas replicas_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

class CheckpointOfReplicas : public ::testing::TestWithParam<MakeOptimizer> {};

TEST_P(CheckpointOfReplicas, IsThatOfOneModel) {
  const TemporaryFolder folder;
  ShardedNets three(3, 1, GetParam());
  three.train(2);
  const auto path = save_checkpoint(folder.path("three"), three.states(), {.step = 2});

  OddNet net(2);
  const auto optimizer = GetParam()(net.parameters());
  const std::vector<RankState> whole = {rank_state(net, optimizer.get())};
  EXPECT_EQ(load_checkpoint(path, whole, {.needs_all = true}).step, 2);
  const auto expected = values_of(whole);
  EXPECT_TRUE(expected.contains("twin.weight"));
  EXPECT_TRUE(expected.contains("norm.running_mean"));
  EXPECT_FALSE(expected.contains("unused/exp_avg"));

  // What was read is what the replicas have, each a part of it, and has not stayed where it began.
  std::map<std::string, torch::Tensor> gathered;
  for (const GatheredState& state : three.states()) {
    for (const auto& [name, tensor] : state.tensors) {
      EXPECT_TRUE(expected.at(name).equal(tensor)) << name;
      gathered[name] = tensor;
    }
  }
  EXPECT_EQ(gathered.size(), whole.front().tensors.size());
  EXPECT_FALSE(gathered.at("turned").equal(OddNet(1).turned));
  EXPECT_TRUE(gathered.at("unused").equal(OddNet(1).unused));

  // From one model to two replicas and back.
  const auto alone = save_checkpoint(folder.path("alone"), whole, {.step = 2});
  ShardedNets two(2, 3, GetParam());
  EXPECT_EQ(two.load(alone).step, 2);
  const auto again = save_checkpoint(folder.path("again"), two.states(), {.step = 2});
  OddNet last(4);
  const auto last_optimizer = GetParam()(last.parameters());
  load_checkpoint(again, {rank_state(last, last_optimizer.get())}, {.needs_all = true});
  expect_same(values_of({rank_state(last, last_optimizer.get())}), expected);
  EXPECT_EQ(manifest_of(again).scalars, manifest_of(path).scalars);
  EXPECT_EQ(manifest_of(again).aliases, manifest_of(path).aliases);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, CheckpointOfReplicas,
                         ::testing::Values(make_adamw, make_momentum), [](const auto& instance) {
                           return instance.index == 0 ? "AdamW" : "Momentum";
                         });

TEST(ShardedCheckpoint, MayBeSavedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  ShardedNets two(2, 1, make_adamw);
  const auto path = save_checkpoint(folder.path("run"), two.states(), {.step = 0});
  EXPECT_TRUE(CheckpointReader(path).read("turned").equal(OddNet(1).turned));
  EXPECT_TRUE(manifest_of(path).scalars.empty());
  two.load(path);
}

TEST(ShardedCheckpoint, NamesWhatDoesNotFit) {
  const TemporaryFolder folder;
  OddNet net(1);
  GatheredState state = gather(rank_state(net));
  for (auto& [name, tensor] : state.tensors) {
    if (name == "turned") tensor = torch::zeros({7, 5});
  }
  const auto turned = save_checkpoint(folder.path("turned"), std::vector{state}, {});
  ShardedNets two(2, 1, make_adamw);
  EXPECT_THAT(message_of([&] { two.load(turned); }),
              HasSubstr("has no state of an optimizer; load without one"));
  state.optimizer = "AdamW";
  const auto named = save_checkpoint(folder.path("named"), std::vector{state}, {});
  EXPECT_THAT(message_of([&] { two.load(named); }),
              AllOf(HasSubstr("\"turned\" is Float of shape [7, 5], but the model has Float of "
                              "shape [5, 7]")));
  GatheredState cut = gather(rank_state(net));
  cut.optimizer = "AdamW";
  cut.parameter_states = {{"scale", {{"step", std::int64_t{1}}, {"exp_avg", torch::ones(2)}}}};
  const auto path = save_checkpoint(folder.path("cut"), std::vector{cut}, {});
  EXPECT_THAT(message_of([&] { two.load(path); }), AllOf(HasSubstr("\"scale\""), HasSubstr("[2]")));
}

}  // namespace
}  // namespace penstock
