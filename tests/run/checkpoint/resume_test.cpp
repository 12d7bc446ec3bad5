#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/random/random_scope.h"
#include "tests/run/checkpoint/state_values.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

namespace nn = torch::nn;
namespace functional = torch::nn::functional;
using penstock::testing::TemporaryFolder;

constexpr int kWords = 11;
constexpr int kHidden = 8;
constexpr int kLayers = 8;
constexpr int kMicrobatches = 4;
constexpr std::uint64_t kSeed = 5;

// The embedding is the head's weight, too, and every layer drops something.
class TiedNoisy final : public nn::Module {
 public:
  explicit TiedNoisy(std::uint64_t seed) {
    torch::manual_seed(seed);
    embedding_ = register_module("embedding", nn::Embedding(kWords, kHidden));
    layers_ = register_module("layers", nn::ModuleList());
    for (int layer = 0; layer < kLayers; ++layer) layers_->push_back(nn::Linear(kHidden, kHidden));
  }
  torch::Tensor forward(const torch::Tensor& words) {
    torch::Tensor hidden = embedding_(words);
    for (const auto& layer : *layers_) {
      const torch::Tensor change = torch::tanh(layer->as<nn::Linear>()->forward(hidden));
      hidden = hidden + torch::dropout(change, 0.2, is_training());
    }
    return hidden.matmul(embedding_->weight.t());
  }

 private:
  nn::Embedding embedding_ = nullptr;
  nn::ModuleList layers_ = nullptr;
};

torch::Tensor word_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return functional::cross_entropy(output.flatten(0, 1), target.flatten());
}

struct Batch {
  torch::Tensor words;
  torch::Tensor targets;
};

// The batch with this number among those that the seed samples.
Batch sample_batch(std::uint64_t seed, std::int64_t number) {
  auto generator =
      torch::make_generator<at::CPUGeneratorImpl>(seed * 1000 + static_cast<std::uint64_t>(number));
  const torch::Tensor text = torch::randint(kWords, {8, 6}, generator, torch::kLong);
  return {text.slice(1, 0, 5), text.slice(1, 1, 6)};
}

std::uint64_t seed_of_step(const TrainingPosition& position) {
  return position.seed + 77 * static_cast<std::uint64_t>(position.step);
}

// A way to train: from a position on, for a number of steps.
class Trainer {
 public:
  Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  Trainer(Trainer&&) = delete;
  Trainer& operator=(Trainer&&) = delete;
  virtual ~Trainer() = default;

  void train(int num_steps) {
    for (int index = 0; index < num_steps; ++index) {
      const auto number = nlohmann::json::parse(position.data).at("next_batch").get<std::int64_t>();
      step(sample_batch(position.seed, number), seed_of_step(position));
      position.step += 1;
      position.data = nlohmann::json{{"next_batch", number + 1}}.dump();
    }
  }
  virtual std::vector<RankState> states() = 0;

  TrainingPosition position{.step = 0, .seed = kSeed, .data = R"({"next_batch":0})"};

 private:
  virtual void step(const Batch& batch, std::uint64_t seed) = 0;
};

class PipelineTrainer final : public Trainer {
 public:
  // With an optimizer for each stage.
  PipelineTrainer(std::uint64_t model_seed, const char* schedule, int num_stages)
      : model_(std::make_shared<TiedNoisy>(model_seed)),
        pipe_(pipeline(model_, {sample_batch(0, 0).words.slice(0, 0, 2)},
                       {.split_policy = split_by_parameters(num_stages)})),
        stages_(pipe_.build_stages()),
        schedule_(get_schedule_class(schedule)(
            stages_, {.num_microbatches = kMicrobatches, .loss = word_loss})) {
    for (const auto& stage : stages_) {
      optimizers_.push_back(std::make_unique<torch::optim::AdamW>(
          stage->parameters(), torch::optim::AdamWOptions(0.02)));
    }
  }

  int num_ranks() const { return schedule_->num_ranks(); }
  std::vector<RankState> states() override {
    std::vector<RankState> states;
    for (std::size_t index = 0; index < stages_.size(); ++index) {
      states.push_back(rank_state(std::vector{stages_[index]}, optimizers_[index].get()));
    }
    return states;
  }

 private:
  void step(const Batch& batch, std::uint64_t seed) override {
    for (const auto& optimizer : optimizers_) optimizer->zero_grad();
    schedule_->step({batch.words},
                    {.target = batch.targets, .return_outputs = false, .seed = seed});
    for (const auto& optimizer : optimizers_) optimizer->step();
  }

  std::shared_ptr<TiedNoisy> model_;
  Pipe pipe_;
  StageList stages_;
  std::unique_ptr<PipelineSchedule> schedule_;
  std::vector<std::unique_ptr<torch::optim::AdamW>> optimizers_;
};

class PlainTrainer final : public Trainer {
 public:
  explicit PlainTrainer(std::uint64_t model_seed)
      : model_(std::make_shared<TiedNoisy>(model_seed)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(0.02)) {}

  std::vector<RankState> states() override { return {rank_state(*model_, &optimizer_)}; }

 private:
  void step(const Batch& batch, std::uint64_t seed) override {
    optimizer_.zero_grad();
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      const RandomScope scope({.step_seed = seed, .microbatch = microbatch}, RandomStream::PerDraw);
      const auto rows = [microbatch](const torch::Tensor& tensor) {
        return tensor.tensor_split(kMicrobatches)[static_cast<std::size_t>(microbatch)];
      };
      const torch::Tensor loss = word_loss(model_->forward(rows(batch.words)), rows(batch.targets));
      loss.backward(torch::full_like(loss, 1.0 / kMicrobatches));
    }
    optimizer_.step();
  }

  std::shared_ptr<TiedNoisy> model_;
  torch::optim::AdamW optimizer_;
};

void expect_equal_training(Trainer& found, Trainer& expected) {
  EXPECT_EQ(found.position, expected.position);
  expect_same(values_of(found.states()), values_of(expected.states()));
}

TEST(Resume, UnderAnotherPipelineOrNoneIsAsIfNothingHadHappened) {
  const TemporaryFolder folder;
  constexpr int kBefore = 3;
  constexpr int kAfter = 3;
  PlainTrainer undisturbed(1);
  undisturbed.train(kBefore);
  const auto early = values_of(undisturbed.states());
  undisturbed.train(kAfter);
  ASSERT_FALSE(
      early.at("embedding.weight").equal(values_of(undisturbed.states()).at("embedding.weight")));

  PipelineTrainer first(1, "ZBVZeroBubble", 8);
  ASSERT_EQ(first.num_ranks(), 4);
  first.train(kBefore);
  const auto path = save_checkpoint(folder.path("run"), first.states(), first.position);
  first.train(kAfter);
  expect_equal_training(first, undisturbed);

  PipelineTrainer second(2, "1F1B", 3);
  ASSERT_EQ(second.num_ranks(), 3);
  second.position = load_checkpoint(path, second.states(), {.needs_all = true});
  second.train(kAfter);
  expect_equal_training(second, undisturbed);

  PlainTrainer third(3);
  third.position = load_checkpoint(path, third.states(), {.needs_all = true});
  third.train(kAfter);
  expect_equal_training(third, undisturbed);

  // And back: from no pipeline to one.
  const auto last = save_checkpoint(folder.path("run"), third.states(), third.position);
  PipelineTrainer fourth(4, "Interleaved1F1B", 4);
  fourth.position = load_checkpoint(last, fourth.states(), {.needs_all = true});
  expect_equal_training(fourth, undisturbed);
}

}  // namespace
}  // namespace penstock
