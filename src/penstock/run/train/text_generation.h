#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/run/train/run_pipeline.h"

namespace penstock {

struct TextGenerationOptions {
  int context = 64;          // tokens that the model sees
  int num_tokens = 200;      // to add
  double temperature = 0.8;  // 0: always the most likely token
  std::uint64_t seed = 0;
};

// Scores [context, vocabulary] of what follows each of the tokens [1, context]. In a pipeline over
// processes, undefined where the last stage is not.
using ScoreTokens = std::function<at::Tensor(const at::Tensor& tokens)>;
// Tells all processes of a pipeline what was chosen where there were scores; the identity where
// there is one process alone. `token` is -1 where there were none.
using ShareToken = std::function<std::int64_t(std::int64_t token)>;

// `prompt`, which has at least one token, and what a model adds to it. A function of the scores and
// the seed alone. What lies more than `context` tokens back is forgotten.
std::vector<std::int64_t> generate_tokens(std::vector<std::int64_t> prompt,
                                          const ScoreTokens& score,
                                          const TextGenerationOptions& options,
                                          const ShareToken& share = {});

// The same for a pipeline in evaluation mode, whose tokens are bytes; to be called by all processes
// of a run. Ends what `pipeline` can do if it has replicas, as make_forward_pipelines() says.
// Throws ArgumentError on an empty prompt.
std::string generate_text(RunPipeline& pipeline, const std::string& prompt,
                          const TextGenerationOptions& options);

// Bytes as tokens and back.
constexpr int kNumByteTokens = 256;
std::vector<std::int64_t> tokens_of_text(const std::string& text);
std::string text_of_tokens(const std::vector<std::int64_t>& tokens);

// For a terminal: unprintable bytes, and those that are no UTF-8, become "?".
std::string printable_text(const std::string& text);

}  // namespace penstock
