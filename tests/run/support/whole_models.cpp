#include "tests/run/support/whole_models.h"

#include "penstock/run/capture/pipe_split.h"
#include "tests/run/support/models.h"

namespace penstock {
namespace {

namespace nn = torch::nn;
namespace functional = torch::nn::functional;

constexpr int kWidth = 8;
constexpr int kSequenceLength = 5;
constexpr int kVocabularySize = 11;

torch::Tensor mean_square(const c10::IValue& output, const torch::Tensor& target) {
  return functional::mse_loss(output.toTensor(), target);
}

template <typename Module>
std::function<std::shared_ptr<WholeModule>()> seeded() {
  return [] {
    torch::manual_seed(11);
    return std::make_shared<Module>();
  };
}

class Mlp final : public WholeModule {
 public:
  Mlp() : layers_(register_module("layers", nn::ModuleList())) {
    for (int layer = 0; layer < 4; ++layer) layers_->push_back(nn::Linear(kWidth, kWidth));
  }
  c10::IValue forward(const std::vector<c10::IValue>& inputs) override {
    torch::Tensor hidden = inputs[0].toTensor();
    for (int layer = 0; layer < 4; ++layer) {
      place(layer);
      hidden =
          torch::gelu(layers_[static_cast<std::size_t>(layer)]->as<nn::Linear>()->forward(hidden));
    }
    return hidden;
  }

 private:
  nn::ModuleList layers_;
};

nn::Conv2d convolution(int from, int to) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, 3).padding(1));
}

class ResidualImpl final : public nn::Module {
 public:
  explicit ResidualImpl(int channels)
      : first_(register_module("first", convolution(channels, channels))),
        norm_(register_module("norm", nn::BatchNorm2d(channels))),
        second_(register_module("second", convolution(channels, channels))) {}
  torch::Tensor forward(const torch::Tensor& image) {
    torch::Tensor hidden = norm_(first_(image));
    hidden.relu_();
    return torch::relu(image + second_(hidden));
  }

 private:
  nn::Conv2d first_;
  nn::BatchNorm2d norm_;
  nn::Conv2d second_;
};
TORCH_MODULE(Residual);

class ConvNet final : public WholeModule {
 public:
  ConvNet()
      : stem_(register_module("stem", convolution(2, 3))),
        block0_(register_module("block0", Residual(3))),
        block1_(register_module("block1", Residual(3))),
        head_(register_module("head", nn::Linear(3, 4))) {}
  c10::IValue forward(const std::vector<c10::IValue>& inputs) override {
    torch::Tensor image = stem_(inputs[0].toTensor());
    place(1);
    image = block0_(image);
    place(2);
    image = block1_(image);
    place(3);
    return head_(image.mean({2, 3}));
  }

 private:
  nn::Conv2d stem_;
  Residual block0_;
  Residual block1_;
  nn::Linear head_;
};

class UNet final : public WholeModule {
 public:
  UNet()
      : down0_(register_module("down0", convolution(1, 3))),
        down1_(register_module("down1", convolution(3, 4))),
        middle_(register_module("middle", convolution(4, 4))),
        up1_(register_module("up1", convolution(8, 3))),
        up0_(register_module("up0", convolution(6, 1))) {}
  c10::IValue forward(const std::vector<c10::IValue>& inputs) override {
    const torch::Tensor first = torch::relu(down0_(inputs[0].toTensor()));
    place(1);
    const torch::Tensor second = torch::relu(down1_(torch::max_pool2d(first, 2)));
    place(2);
    torch::Tensor image = torch::relu(middle_(torch::max_pool2d(second, 2)));
    image = torch::upsample_nearest2d(image, {4, 4});
    image = torch::relu(up1_(torch::cat({image, second}, 1)));
    place(3);
    image = torch::upsample_nearest2d(image, {8, 8});
    return up0_(torch::cat({image, first}, 1));
  }

 private:
  nn::Conv2d down0_;
  nn::Conv2d down1_;
  nn::Conv2d middle_;
  nn::Conv2d up1_;
  nn::Conv2d up0_;
};

torch::Tensor attention_of(const torch::Tensor& query, const torch::Tensor& key,
                           const torch::Tensor& value) {
  return query.matmul(key.transpose(-2, -1)).div(2.0).softmax(-1).matmul(value);
}

class BlockImpl final : public nn::Module {
 public:
  BlockImpl()
      : norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        mix_(register_module("mix", nn::Linear(kWidth, 3 * kWidth))),
        grow_(register_module("grow", nn::Linear(kWidth, 2 * kWidth))),
        shrink_(register_module("shrink", nn::Linear(2 * kWidth, kWidth))) {}
  torch::Tensor forward(const torch::Tensor& hidden) {
    const auto parts = mix_(norm_(hidden)).chunk(3, -1);
    const torch::Tensor mixed = hidden + attention_of(parts[0], parts[1], parts[2]);
    return mixed + shrink_(torch::gelu(grow_(mixed)));
  }

 private:
  nn::LayerNorm norm_;
  nn::Linear mix_;
  nn::Linear grow_;
  nn::Linear shrink_;
};
TORCH_MODULE(Block);

class Gpt final : public WholeModule {
 public:
  Gpt()
      : embedding_(register_module("embedding", nn::Embedding(kVocabularySize, kWidth))),
        block0_(register_module("block0", Block())),
        block1_(register_module("block1", Block())),
        norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))) {}
  c10::IValue forward(const std::vector<c10::IValue>& inputs) override {
    torch::Tensor hidden = embedding_(inputs[0].toTensor());
    place(1);
    hidden = block0_(hidden);
    place(2);
    hidden = block1_(hidden);
    place(3);
    return norm_(hidden).matmul(embedding_->weight.t());
  }

 private:
  nn::Embedding embedding_;
  Block block0_;
  Block block1_;
  nn::LayerNorm norm_;
};

class CrossBlockImpl final : public nn::Module {
 public:
  CrossBlockImpl()
      : query_(register_module("query", nn::Linear(kWidth, kWidth))),
        memory_(register_module("memory", nn::Linear(kWidth, 2 * kWidth))) {}
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& memory) {
    const auto parts = memory_(memory).chunk(2, -1);
    return hidden + attention_of(query_(hidden), parts[0], parts[1]);
  }

 private:
  nn::Linear query_;
  nn::Linear memory_;
};
TORCH_MODULE(CrossBlock);

class EncoderDecoder final : public WholeModule {
 public:
  EncoderDecoder()
      : encoder0_(register_module("encoder0", Block())),
        encoder1_(register_module("encoder1", Block())),
        decoder0_(register_module("decoder0", CrossBlock())),
        decoder1_(register_module("decoder1", CrossBlock())) {}
  c10::IValue forward(const std::vector<c10::IValue>& inputs) override {
    torch::Tensor memory = encoder0_(inputs[0].toTensor());
    place(1);
    memory = encoder1_(memory);
    place(2);
    torch::Tensor hidden = decoder0_(inputs[1].toTensor(), memory);
    place(3);
    hidden = decoder1_(hidden, memory);
    return hidden;
  }

 private:
  Block encoder0_;
  Block encoder1_;
  CrossBlock decoder0_;
  CrossBlock decoder1_;
};

class TwoTowers final : public WholeModule {
 public:
  TwoTowers()
      : left0_(register_module("left0", nn::Linear(kWidth, kWidth))),
        left1_(register_module("left1", nn::Linear(kWidth, kWidth))),
        right0_(register_module("right0", nn::Linear(kWidth, kWidth))),
        right1_(register_module("right1", nn::Linear(kWidth, kWidth))) {}
  c10::IValue forward(const std::vector<c10::IValue>& inputs) override {
    const torch::Tensor hidden = torch::relu(left0_(inputs[0].toTensor()));
    place(1);
    const torch::Tensor left = left1_(hidden);
    place(2);
    const torch::Tensor between = torch::relu(right0_(inputs[1].toTensor()));
    place(3);
    const torch::Tensor right = right1_(between);
    c10::Dict<std::string, torch::Tensor> output;
    output.insert("score", (left * right).sum(-1));
    output.insert("left", left);
    return output;
  }

 private:
  nn::Linear left0_;
  nn::Linear left1_;
  nn::Linear right0_;
  nn::Linear right1_;
};

}  // namespace

void WholeModule::place(int number) const {
  if (markers.contains(number)) pipe_split();
}

TraceSource trace_source(const std::shared_ptr<WholeModule>& module) {
  return {.forward = [module = module.get()](
                         const std::vector<c10::IValue>& inputs,
                         const KeywordArguments& /*keywords*/) { return module->forward(inputs); },
          .module = module};
}

WholeModel whole_mlp() {
  return {.name = "Mlp",
          .make = seeded<Mlp>(),
          .make_inputs =
              [](int rows) {
                return std::vector<c10::IValue>{random_data(1, {rows, kWidth})};
              },
          .make_targets =
              [](int rows) {
                return random_data(2, {rows, kWidth});
              },
          .loss = mean_square,
          .modules = {"layers.0", "layers.1", "layers.2", "layers.3"}};
}

WholeModel whole_conv_net() {
  return {.name = "ConvNet",
          .make = seeded<ConvNet>(),
          .make_inputs =
              [](int rows) {
                return std::vector<c10::IValue>{random_data(3, {rows, 2, 6, 6})};
              },
          .make_targets =
              [](int rows) {
                return random_data(4, {rows, 4});
              },
          .loss = mean_square,
          .modules = {"stem", "block0", "block1", "head"}};
}

WholeModel whole_u_net() {
  return {.name = "UNet",
          .make = seeded<UNet>(),
          .make_inputs =
              [](int rows) {
                return std::vector<c10::IValue>{random_data(5, {rows, 1, 8, 8})};
              },
          .make_targets =
              [](int rows) {
                return random_data(6, {rows, 1, 8, 8});
              },
          .loss = mean_square,
          .modules = {"down0", "down1", "middle", "up0"}};
}

WholeModel whole_gpt() {
  return {.name = "Gpt",
          .make = seeded<Gpt>(),
          .make_inputs =
              [](int rows) {
                torch::manual_seed(7);
                return std::vector<c10::IValue>{
                    torch::randint(kVocabularySize, {rows, kSequenceLength}, torch::kLong)};
              },
          .make_targets =
              [](int rows) {
                torch::manual_seed(8);
                return torch::randint(kVocabularySize, {rows, kSequenceLength}, torch::kLong);
              },
          .loss =
              [](const c10::IValue& output, const torch::Tensor& target) {
                return functional::cross_entropy(output.toTensor().flatten(0, 1), target.flatten());
              },
          .modules = {"embedding", "block0", "block1", "norm"}};
}

WholeModel whole_encoder_decoder() {
  return {.name = "EncoderDecoder",
          .make = seeded<EncoderDecoder>(),
          .make_inputs =
              [](int rows) {
                return std::vector<c10::IValue>{random_data(9, {rows, kSequenceLength, kWidth}),
                                                random_data(10, {rows, 3, kWidth})};
              },
          .make_targets =
              [](int rows) {
                return random_data(11, {rows, 3, kWidth});
              },
          .loss = mean_square,
          .modules = {"encoder0", "encoder1", "decoder0", "decoder1"}};
}

WholeModel whole_two_towers() {
  return {.name = "TwoTowers",
          .make = seeded<TwoTowers>(),
          .make_inputs =
              [](int rows) {
                return std::vector<c10::IValue>{random_data(12, {rows, kWidth}),
                                                random_data(13, {rows, kWidth})};
              },
          .make_targets = [](int rows) { return random_data(14, {rows}); },
          .loss =
              [](const c10::IValue& output, const torch::Tensor& target) {
                const auto entries = output.toGenericDict();
                return functional::mse_loss(entries.at("score").toTensor(), target) +
                       entries.at("left").toTensor().square().mean();
              },
          .modules = {"left0", "left1", "right0", "right1"}};
}

std::vector<WholeModel> all_whole_models() {
  return {whole_mlp(), whole_conv_net(),        whole_u_net(),
          whole_gpt(), whole_encoder_decoder(), whole_two_towers()};
}

}  // namespace penstock
