#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/run/capture/captured_model.h"
#include "penstock/run/microbatch/microbatch.h"
#include "penstock/run/train/dataset.h"

namespace penstock {

// The model of a run, and its data; what is not set is as the model has it by default.
struct ModelOptions {
  std::string name = "gpt";  // gpt, mlp, resnet, or a TorchScript file
  std::optional<int> layers = std::nullopt;
  std::optional<int> width = std::nullopt;
  std::optional<int> heads = std::nullopt;       // gpt
  std::optional<int> context = std::nullopt;     // of text and tokens
  std::optional<int> vocabulary = std::nullopt;  // of tokens; default: as the data has it
  double dropout = 0;
  bool is_tied = true;  // gpt
};

// Whether it is one of the models that Penstock brings; else `name` is a file.
bool is_built_in(const std::string& name);

// The data behind `paths`. By the name of the first: .pt and .safetensors are tensors, .bin, .u16
// and .u32 are tokens, everything else is text, and so are folders. Without a path, samples that
// are made up, which a gpt does not have. Throws Error with what is wrong with a file.
std::shared_ptr<const Dataset> read_data(const std::vector<std::string>& paths,
                                         const ModelOptions& model, std::uint64_t seed);

// The scores that text is made from: tokens in, and how many different ones. Nothing if the data is
// something else.
struct TokenShape {
  int context = 0;
  int vocabulary = 0;
};
std::optional<TokenShape> token_shape_of(const Dataset& data);

// The model, new and initialized with `seed` or as the file has it, captured in training mode with
// a microbatch of `rows` rows. Throws ArgumentError if model and data do not fit, CaptureError if
// the file is no model.
struct RunModel {
  CapturedModel captured;
  Microbatch example;
  std::int64_t num_parameters = 0;
};
RunModel make_run_model(const ModelOptions& options, const Dataset& data, int rows,
                        std::uint64_t seed);

}  // namespace penstock
