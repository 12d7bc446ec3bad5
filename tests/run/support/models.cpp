#include "tests/run/support/models.h"

#include <utility>

#include "penstock/run/stage/make_stages.h"

namespace penstock {
namespace {

namespace nn = torch::nn;
namespace functional = torch::nn::functional;

class MlpBlock final : public Block {
 public:
  static constexpr int kWidth = 12;

  MlpBlock() : linear_(register_module("linear", nn::Linear(kWidth, kWidth))) {}
  torch::Tensor forward(torch::Tensor input) override { return torch::gelu(linear_(input)); }

 private:
  nn::Linear linear_;
};

constexpr int kVocabulary = 17;
constexpr int kSequence = 6;
constexpr int kModel = 8;
constexpr int kHeads = 2;

class AttentionImpl final : public nn::Module {
 public:
  AttentionImpl()
      : mix_(register_module("mix", nn::Linear(kModel, 3 * kModel))),
        project_(register_module("project", nn::Linear(kModel, kModel))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    const auto rows = input.size(0);
    const auto length = input.size(1);
    auto parts =
        mix_(input).view({rows, length, 3, kHeads, kModel / kHeads}).permute({2, 0, 3, 1, 4});
    auto scores = parts[0].matmul(parts[1].transpose(-2, -1)) / 2.0;
    const auto future = torch::ones({length, length}, torch::kBool).triu(1);
    const auto mixed = scores.masked_fill(future, -1e9).softmax(-1).matmul(parts[2]);
    return project_(mixed.transpose(1, 2).reshape({rows, length, kModel}));
  }

 private:
  nn::Linear mix_;
  nn::Linear project_;
};
TORCH_MODULE(Attention);

class TransformerImpl final : public nn::Module {
 public:
  TransformerImpl()
      : first_norm_(register_module("first_norm", nn::LayerNorm(nn::LayerNormOptions({kModel})))),
        attention_(register_module("attention", Attention())),
        second_norm_(register_module("second_norm", nn::LayerNorm(nn::LayerNormOptions({kModel})))),
        grow_(register_module("grow", nn::Linear(kModel, 2 * kModel))),
        shrink_(register_module("shrink", nn::Linear(2 * kModel, kModel))) {}

  torch::Tensor forward(torch::Tensor hidden) {
    hidden = hidden + attention_(first_norm_(hidden));
    return hidden + shrink_(torch::gelu(grow_(second_norm_(hidden))));
  }

 private:
  nn::LayerNorm first_norm_;
  Attention attention_;
  nn::LayerNorm second_norm_;
  nn::Linear grow_;
  nn::Linear shrink_;
};
TORCH_MODULE(Transformer);

class GptBlock final : public Block {
 public:
  GptBlock(bool is_first, bool is_last) : body_(register_module("body", Transformer())) {
    if (is_first) embedding_ = register_module("embedding", nn::Embedding(kVocabulary, kModel));
    if (is_last) head_ = register_module("head", nn::Linear(kModel, kVocabulary));
  }
  torch::Tensor forward(torch::Tensor hidden) override {
    if (embedding_) hidden = embedding_(hidden);
    hidden = body_(hidden);
    return head_ ? head_(hidden) : hidden;
  }

 private:
  nn::Embedding embedding_ = nullptr;
  Transformer body_ = nullptr;
  nn::Linear head_ = nullptr;
};

class ConvBlock final : public Block {
 public:
  static constexpr int kChannels = 3;

  ConvBlock()
      : first_(register_module("first", convolution())),
        norm_(register_module("norm", nn::BatchNorm2d(kChannels))),
        second_(register_module("second", convolution())) {}
  torch::Tensor forward(torch::Tensor image) override {
    return image + second_(torch::relu(norm_(first_(image))));
  }

 private:
  static nn::Conv2d convolution() {
    return nn::Conv2d(nn::Conv2dOptions(kChannels, kChannels, 3).padding(1));
  }
  nn::Conv2d first_;
  nn::BatchNorm2d norm_;
  nn::Conv2d second_;
};

template <typename Make>
std::function<Blocks(int)> with_seed(Make make) {
  return [make](int num_stages) {
    torch::manual_seed(7);
    Blocks blocks;
    for (int stage = 0; stage < num_stages; ++stage) blocks.push_back(make(stage, num_stages));
    return blocks;
  };
}

torch::Tensor random_tokens(std::uint64_t seed, int rows) {
  torch::manual_seed(seed);
  return torch::randint(kVocabulary, {rows, kSequence}, torch::kLong);
}

}  // namespace

torch::Tensor random_data(std::uint64_t seed, torch::IntArrayRef sizes) {
  torch::manual_seed(seed);
  return torch::randn(sizes);
}

TestModel mlp_model() {
  return {.name = "Mlp",
          .make = with_seed([](int, int) { return std::make_shared<MlpBlock>(); }),
          .make_inputs =
              [](int rows) {
                return random_data(1, {rows, MlpBlock::kWidth});
              },
          .make_targets =
              [](int rows) {
                return random_data(2, {rows, MlpBlock::kWidth});
              },
          .loss = [](const auto& output,
                     const auto& target) { return functional::mse_loss(output, target); }};
}

TestModel gpt_model() {
  return {.name = "Gpt",
          .make = with_seed([](int stage, int num_stages) {
            return std::make_shared<GptBlock>(stage == 0, stage == num_stages - 1);
          }),
          .make_inputs = [](int rows) { return random_tokens(3, rows); },
          .make_targets = [](int rows) { return random_tokens(4, rows); },
          .loss =
              [](const auto& output, const auto& target) {
                return functional::cross_entropy(output.reshape({-1, kVocabulary}),
                                                 target.reshape({-1}));
              }};
}

TestModel conv_net_model() {
  return {.name = "ConvNet",
          .make = with_seed([](int, int) { return std::make_shared<ConvBlock>(); }),
          .make_inputs =
              [](int rows) {
                return random_data(5, {rows, ConvBlock::kChannels, 5, 5});
              },
          .make_targets =
              [](int rows) {
                return random_data(6, {rows, ConvBlock::kChannels, 5, 5});
              },
          .loss = [](const auto& output,
                     const auto& target) { return functional::mse_loss(output, target); }};
}

const std::vector<TestModel>& test_models() {
  static const std::vector<TestModel> models = {mlp_model(), gpt_model(), conv_net_model()};
  return models;
}

StageList make_stages(const Blocks& blocks) {
  std::vector<std::shared_ptr<StageModule>> modules;
  for (const auto& block : blocks) modules.push_back(make_stage_module(block));
  return make_stages(modules);
}

std::vector<torch::Tensor> parameters_of(const Blocks& blocks) {
  std::vector<torch::Tensor> parameters;
  for (const auto& block : blocks) {
    for (const auto& parameter : block->parameters()) parameters.push_back(parameter);
  }
  return parameters;
}

}  // namespace penstock
