#include "penstock/run/train/gpt.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "penstock/base/error.h"
#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/train/internal/model_source.h"

namespace penstock {
namespace {

namespace nn = torch::nn;

// Of new weights: that of GPT-2 for its width of 768, and more for narrower models.
double spread_of(const GptOptions& options) {
  return 0.5 / std::sqrt(static_cast<double>(options.width));
}

// Rows are tokens here, [rows of the batch * context, width]: a plain matrix multiplies fastest.
class GptBlockImpl final : public nn::Module {
 public:
  explicit GptBlockImpl(const GptOptions& options)
      : options_(options),
        attention_norm_(register_module("attention_norm",
                                        nn::LayerNorm(nn::LayerNormOptions({options.width})))),
        queries_keys_values_(
            register_module("attention", nn::Linear(options.width, 3 * options.width))),
        mix_(register_module("mix", nn::Linear(options.width, options.width))),
        norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({options.width})))),
        grow_(register_module("grow", nn::Linear(options.width, 4 * options.width))),
        shrink_(register_module("shrink", nn::Linear(4 * options.width, options.width))) {}

  at::Tensor forward(const at::Tensor& hidden) {
    const at::Tensor attended = hidden + dropped(mix_(attention(attention_norm_(hidden))));
    return attended + dropped(shrink_(at::gelu(grow_(norm_(attended)))));
  }

 private:
  at::Tensor attention(const at::Tensor& hidden) {
    const std::int64_t head_width = options_.width / options_.heads;
    // [3, rows, heads, context, width of a head]
    const at::Tensor parts = queries_keys_values_(hidden)
                                 .view({-1, options_.context, 3, options_.heads, head_width})
                                 .permute({2, 0, 3, 1, 4});
    const at::Tensor later =
        at::full({options_.context, options_.context}, -std::numeric_limits<float>::infinity())
            .triu(1);
    const at::Tensor scores =
        (parts[0] * (1 / std::sqrt(static_cast<double>(head_width)))).matmul(parts[1].mT()) + later;
    return dropped(scores.softmax(-1))
        .matmul(parts[2])
        .transpose(1, 2)
        .reshape({-1, options_.width});
  }

  at::Tensor dropped(const at::Tensor& value) const {
    return options_.dropout == 0 ? value : at::dropout(value, options_.dropout, is_training());
  }

  GptOptions options_;
  nn::LayerNorm attention_norm_;
  nn::Linear queries_keys_values_;
  nn::Linear mix_;
  nn::LayerNorm norm_;
  nn::Linear grow_;
  nn::Linear shrink_;
};
TORCH_MODULE(GptBlock);

class Gpt final : public nn::Module {
 public:
  explicit Gpt(const GptOptions& options)
      : options_(options),
        embedding_(register_module("embedding", nn::Embedding(options.vocabulary, options.width))),
        positions_(register_parameter("positions", at::empty({options.context, options.width}))),
        blocks_(register_module("blocks", nn::ModuleList())),
        norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({options.width})))) {
    for (int layer = 0; layer < options.layers; ++layer) blocks_->push_back(GptBlock(options));
    if (!options.is_tied) {
      head_ = register_module(
          "head", nn::Linear(nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    }
    initialize();
  }

  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor hidden = call("embedding", embedding_, tokens) + positions_;
    if (options_.dropout > 0) hidden = at::dropout(hidden, options_.dropout, is_training());
    hidden = hidden.view({-1, options_.width});
    for (std::size_t layer = 0; layer < blocks_->size(); ++layer) {
      const ModuleScope scope("blocks." + std::to_string(layer));
      hidden = blocks_[layer]->as<GptBlock>()->forward(hidden);
    }
    hidden = call("norm", norm_, hidden);
    const at::Tensor scores =
        hidden.mm((options_.is_tied ? embedding_->weight : head_->weight).t());
    return scores.view({-1, options_.context, options_.vocabulary});
  }

 private:
  // What is added to the stream of values is smaller the more is added, so that its size stays.
  void initialize() {
    const double spread = spread_of(options_);
    const double added = spread / std::sqrt(2.0 * options_.layers);
    for (auto& item : named_parameters()) {
      const std::string& name = item.key();
      const bool is_weight = item.value().dim() > 1;
      const bool is_added = name.ends_with("mix.weight") || name.ends_with("shrink.weight");
      if (is_weight) nn::init::normal_(item.value(), 0, is_added ? added : spread);
      if (name.ends_with("bias")) nn::init::zeros_(item.value());
    }
  }

  GptOptions options_;
  nn::Embedding embedding_;
  at::Tensor positions_;
  nn::ModuleList blocks_;
  nn::LayerNorm norm_;
  nn::Linear head_ = nullptr;
};

}  // namespace

TraceSource make_gpt(const GptOptions& options) {
  require_size("layers", options.layers);
  require_size("width", options.width);
  require_size("heads", options.heads);
  require_size("context", options.context);
  require_size("vocabulary", options.vocabulary);
  require_dropout(options.dropout);
  if (options.width % options.heads != 0) {
    throw ArgumentError(fmt::format(
        "a width of {} cannot be divided among {} heads; the width must be a multiple of the heads",
        options.width, options.heads));
  }
  return source_of(std::make_shared<Gpt>(options));
}

}  // namespace penstock
