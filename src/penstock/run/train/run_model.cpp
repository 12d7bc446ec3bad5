#include "penstock/run/train/run_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/utils.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/capture/script.h"
#include "penstock/run/capture/trace.h"
#include "penstock/run/train/feed_forward_models.h"
#include "penstock/run/train/gpt.h"
#include "penstock/run/train/tensor_data.h"
#include "penstock/run/train/token_data.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 3> kBuiltIn = {"gpt", "mlp", "resnet"};
constexpr std::size_t kLongestName = 200;  // in a message

// Names never look like this, so the user meant a file.
bool looks_like_a_file(const std::string& name) {
  std::error_code ignored;
  return name.find_first_of("/.") != std::string::npos || std::filesystem::exists(name, ignored);
}

[[noreturn]] void refuse(const ModelOptions& options, const Dataset& data, std::string_view needs) {
  throw ArgumentError(fmt::format("a model {} needs {}, but the data is {}", quote(options.name),
                                  needs, data.description()));
}

bool are_whole_numbers(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

std::int64_t num_classes(const at::Tensor& targets) {
  return targets.max().item<std::int64_t>() + 1;
}

// Heads of about the width that is usual in models so small.
int usual_heads(int width) {
  constexpr int kHeadWidth = 32;
  int heads = std::max(1, width / kHeadWidth);
  while (width % heads != 0) --heads;
  return heads;
}

TraceSource gpt_for(const ModelOptions& options, const Dataset& data) {
  const std::optional<TokenShape> shape = token_shape_of(data);
  if (!shape) refuse(options, data, "text or tokens");
  GptOptions gpt;
  gpt.context = shape->context;
  gpt.vocabulary = options.vocabulary.value_or(shape->vocabulary);
  gpt.layers = options.layers.value_or(gpt.layers);
  gpt.width = options.width.value_or(gpt.width);
  gpt.heads = options.heads.value_or(usual_heads(gpt.width));
  gpt.dropout = options.dropout;
  gpt.is_tied = options.is_tied;
  return make_gpt(gpt);
}

TraceSource mlp_for(const ModelOptions& options, const Dataset& data) {
  const auto* const tensors = dynamic_cast<const TensorData*>(&data);
  if (tensors == nullptr || tensors->rows().inputs.dim() != 2 ||
      are_whole_numbers(tensors->rows().inputs)) {
    refuse(options, data, "tensors with rows of numbers as inputs");
  }
  const at::Tensor& targets = tensors->rows().targets;
  MlpOptions mlp;
  mlp.inputs = tensors->rows().inputs.size(1);
  mlp.outputs = are_whole_numbers(targets) ? num_classes(targets)
                : targets.dim() == 2       ? targets.size(1)
                : targets.dim() == 1       ? 1
                                           : 0;
  if (mlp.outputs == 0) refuse(options, data, "classes, numbers or rows of numbers as targets");
  mlp.layers = options.layers.value_or(mlp.layers);
  mlp.width = options.width.value_or(mlp.width);
  mlp.dropout = options.dropout;
  return make_mlp(mlp);
}

TraceSource resnet_for(const ModelOptions& options, const Dataset& data) {
  const auto* const tensors = dynamic_cast<const TensorData*>(&data);
  if (tensors == nullptr || tensors->rows().inputs.dim() != 4 ||
      !are_whole_numbers(tensors->rows().targets)) {
    refuse(options, data, "pictures [samples, channels, height, width] and classes");
  }
  ResnetOptions resnet;
  resnet.channels = tensors->rows().inputs.size(1);
  resnet.classes = num_classes(tensors->rows().targets);
  resnet.layers = options.layers.value_or(resnet.layers);
  resnet.width = options.width.value_or(resnet.width);
  return make_resnet(resnet);
}

bool holds_tensors(const std::filesystem::path& path) {
  return path.extension() == ".pt" || path.extension() == ".safetensors";
}

bool holds_tokens(const std::filesystem::path& path) {
  const std::filesystem::path kind = path.extension();
  return kind == ".bin" || kind == ".u16" || kind == ".u32";
}

CapturedModel capture_file(const std::string& path) {
  torch::jit::Module module = load_script(path);
  module.train();
  return capture_script(module);
}

}  // namespace

bool is_built_in(const std::string& name) {
  return std::find(kBuiltIn.begin(), kBuiltIn.end(), name) != kBuiltIn.end();
}

std::shared_ptr<const Dataset> read_data(const std::vector<std::string>& paths,
                                         const ModelOptions& model, std::uint64_t seed) {
  if (paths.empty()) {
    if (model.name == "mlp") return make_points(seed);
    if (model.name == "resnet") return make_stripes(seed);
    throw ArgumentError(
        fmt::format("a model {} needs data to train on", quote(model.name, kLongestName)));
  }
  const auto no_text = std::find_if(paths.begin(), paths.end(), [](const std::string& path) {
    return holds_tensors(path) || holds_tokens(path);
  });
  if (no_text != paths.end() && paths.size() > 1) {
    throw ArgumentError(fmt::format("{} is not text, so it must be the only data, but there are {}",
                                    quote(*no_text, kLongestName), paths.size()));
  }
  const std::filesystem::path first = paths.front();
  if (holds_tensors(first)) return read_tensors(first);
  const TokenDataOptions options{.context = model.context.value_or(GptOptions{}.context),
                                 .vocabulary = model.vocabulary.value_or(0)};
  if (holds_tokens(first)) return read_tokens(first, options);
  return read_text({paths.begin(), paths.end()}, options);
}

std::optional<TokenShape> token_shape_of(const Dataset& data) {
  if (const auto* const tokens = dynamic_cast<const TokenData*>(&data)) {
    return TokenShape{.context = tokens->context(), .vocabulary = tokens->vocabulary()};
  }
  const auto* const tensors = dynamic_cast<const TensorData*>(&data);
  if (tensors == nullptr) return std::nullopt;
  const at::Tensor& inputs = tensors->rows().inputs;
  const at::Tensor& targets = tensors->rows().targets;
  const bool are_tokens =
      inputs.dim() == 2 && are_whole_numbers(inputs) && are_whole_numbers(targets);
  if (!are_tokens) return std::nullopt;
  return TokenShape{
      .context = static_cast<int>(inputs.size(1)),
      .vocabulary = static_cast<int>(std::max(num_classes(inputs), num_classes(targets)))};
}

RunModel make_run_model(const ModelOptions& options, const Dataset& data, int rows,
                        std::uint64_t seed) {
  if (!is_built_in(options.name) && !looks_like_a_file(options.name)) {
    const std::string_view nearest = nearest_name(options.name, kBuiltIn);
    throw ArgumentError(fmt::format(
        "unknown model {}; expected gpt, mlp, resnet or a TorchScript file{}", quote(options.name),
        nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
  }
  torch::manual_seed(seed);
  const Batch batch = data.take(std::vector<std::int64_t>(static_cast<std::size_t>(rows), 0));
  RunModel model{.captured = {}, .example = {.args = {batch.inputs}, .kwargs = {}}};
  if (!is_built_in(options.name)) {
    model.captured = capture_file(options.name);
  } else {
    const TraceSource source = options.name == "gpt"   ? gpt_for(options, data)
                               : options.name == "mlp" ? mlp_for(options, data)
                                                       : resnet_for(options, data);
    model.captured = trace_model(source, model.example.args);
  }
  for (const CapturedModel::Tensor& tensor : model.captured.tensors) {
    if (!tensor.is_buffer) model.num_parameters += tensor.tensor.numel();
  }
  return model;
}

}  // namespace penstock
