#include "penstock/run/train/feed_forward_models.h"

#include <memory>
#include <string>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/train/internal/model_source.h"

namespace penstock {
namespace {

namespace nn = torch::nn;

class Mlp final : public nn::Module {
 public:
  explicit Mlp(const MlpOptions& options)
      : dropout_(options.dropout), layers_(register_module("layers", nn::ModuleList())) {
    for (int layer = 0; layer < options.layers; ++layer) {
      const bool is_last = layer + 1 == options.layers;
      layers_->push_back(nn::Linear(layer == 0 ? options.inputs : options.width,
                                    is_last ? options.outputs : options.width));
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor hidden = input;
    for (std::size_t layer = 0; layer < layers_->size(); ++layer) {
      const ModuleScope scope("layers." + std::to_string(layer));
      hidden = layers_[layer]->as<nn::Linear>()->forward(hidden);
      if (layer + 1 == layers_->size()) break;
      hidden = at::gelu(hidden);
      if (dropout_ > 0) hidden = at::dropout(hidden, dropout_, is_training());
    }
    return hidden;
  }

 private:
  double dropout_;
  nn::ModuleList layers_;
};

nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t stride) {
  nn::Conv2d layer(nn::Conv2dOptions(from, to, size).padding(size / 2).stride(stride).bias(false));
  return layer;
}

class ResidualBlockImpl final : public nn::Module {
 public:
  ResidualBlockImpl(std::int64_t from, std::int64_t to)
      : first_(register_module("first", convolution(from, to, 3, from == to ? 1 : 2))),
        first_norm_(register_module("first_norm", nn::BatchNorm2d(to))),
        second_(register_module("second", convolution(to, to, 3, 1))),
        second_norm_(register_module("second_norm", nn::BatchNorm2d(to))) {
    if (from != to) shortcut_ = register_module("shortcut", convolution(from, to, 1, 2));
  }

  at::Tensor forward(const at::Tensor& image) {
    const at::Tensor kept = shortcut_.is_empty() ? image : shortcut_(image);
    const at::Tensor hidden = first_norm_(first_(image)).relu();
    return (second_norm_(second_(hidden)) + kept).relu();
  }

 private:
  nn::Conv2d first_;
  nn::BatchNorm2d first_norm_;
  nn::Conv2d second_;
  nn::BatchNorm2d second_norm_;
  nn::Conv2d shortcut_ = nullptr;
};
TORCH_MODULE(ResidualBlock);

class Resnet final : public nn::Module {
 public:
  explicit Resnet(const ResnetOptions& options)
      : stem_(register_module("stem", convolution(options.channels, options.width, 3, 1))),
        stem_norm_(register_module("stem_norm", nn::BatchNorm2d(options.width))),
        blocks_(register_module("blocks", nn::ModuleList())) {
    std::int64_t width = options.width;
    for (int layer = 0; layer < options.layers; ++layer) {
      const bool is_narrowing =
          layer > 0 && layer * 3 / options.layers != (layer - 1) * 3 / options.layers;
      const std::int64_t next = is_narrowing ? 2 * width : width;
      blocks_->push_back(ResidualBlock(width, next));
      width = next;
    }
    head_ = register_module("head", nn::Linear(width, options.classes));
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor hidden = call("stem_norm", stem_norm_, call("stem", stem_, images)).relu();
    for (std::size_t layer = 0; layer < blocks_->size(); ++layer) {
      const ModuleScope scope("blocks." + std::to_string(layer));
      hidden = blocks_[layer]->as<ResidualBlock>()->forward(hidden);
    }
    return call("head", head_, hidden.mean({2, 3}));
  }

 private:
  nn::Conv2d stem_;
  nn::BatchNorm2d stem_norm_;
  nn::ModuleList blocks_;
  nn::Linear head_ = nullptr;
};

}  // namespace

TraceSource make_mlp(const MlpOptions& options) {
  require_size("inputs", options.inputs);
  require_size("outputs", options.outputs);
  require_size("layers", options.layers);
  require_size("width", options.width);
  require_dropout(options.dropout);
  return source_of(std::make_shared<Mlp>(options));
}

TraceSource make_resnet(const ResnetOptions& options) {
  require_size("channels", options.channels);
  require_size("classes", options.classes);
  require_size("layers", options.layers);
  require_size("width", options.width);
  return source_of(std::make_shared<Resnet>(options));
}

}  // namespace penstock
