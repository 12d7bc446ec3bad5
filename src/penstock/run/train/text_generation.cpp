#include "penstock/run/train/text_generation.h"

#include <algorithm>
#include <random>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

// The last `context` tokens, and zeros behind them: a decoder does not look ahead.
at::Tensor window_of(const std::vector<std::int64_t>& tokens, int context) {
  const auto count = std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(context));
  at::Tensor window = at::zeros({1, context}, at::kLong);
  std::copy(tokens.end() - static_cast<std::ptrdiff_t>(count), tokens.end(),
            window.data_ptr<std::int64_t>());
  return window;
}

std::int64_t choose(const at::Tensor& scores, double temperature, std::mt19937_64& engine) {
  if (temperature == 0) return scores.argmax().item<std::int64_t>();
  const at::Tensor shares = (scores.to(at::kDouble) / temperature).softmax(0);
  constexpr double kBits = 9007199254740992.0;  // 2^53, what a double counts exactly
  constexpr int kDropped = 11;
  double rest = static_cast<double>(engine() >> kDropped) / kBits;
  const auto* const share = shares.data_ptr<double>();
  std::int64_t token = 0;
  while (token + 1 < shares.size(0) && rest >= share[token]) rest -= share[token++];
  return token;
}

// How many bytes of `text` from `begin` on are one character of UTF-8; 0 if they are none.
std::size_t character_at(const std::string& text, std::size_t begin) {
  const auto byte = [&text](std::size_t place) { return static_cast<unsigned char>(text[place]); };
  const unsigned char first = byte(begin);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xf0 && first < 0xf5   ? 4
                           : first >= 0xe0 && first < 0xf0 ? 3
                           : first >= 0xc2 && first < 0xe0 ? 2
                                                           : 0;
  if (size == 0 || begin + size > text.size()) return 0;
  for (std::size_t place = begin + 1; place < begin + size; ++place) {
    if ((byte(place) & 0xc0U) != 0x80) return 0;
  }
  return size;
}

}  // namespace

std::vector<std::int64_t> generate_tokens(std::vector<std::int64_t> prompt,
                                          const ScoreTokens& score,
                                          const TextGenerationOptions& options,
                                          const ShareToken& share) {
  std::mt19937_64 engine(options.seed);
  for (int count = 0; count < options.num_tokens; ++count) {
    const auto last =
        std::min(static_cast<std::int64_t>(prompt.size()), std::int64_t{options.context}) - 1;
    const at::Tensor scores = score(window_of(prompt, options.context));
    std::int64_t token =
        scores.defined() ? choose(scores[last], options.temperature, engine) : std::int64_t{-1};
    if (share) token = share(token);
    prompt.push_back(token);
  }
  return prompt;
}

std::string generate_text(RunPipeline& pipeline, const std::string& prompt,
                          const TextGenerationOptions& options) {
  if (prompt.empty()) throw ArgumentError("a model needs at least one byte to begin with");
  const auto pipelines = pipeline.make_forward_pipelines(1);
  const auto score = [&](const at::Tensor& tokens) {
    at::Tensor scores;
    pipelines->run([&](int replica) {
      const c10::IValue output = pipelines->replica(replica).eval({tokens}).output;
      if (replica == 0 && output.isTensor()) scores = output.toTensor()[0];
    });
    return scores;
  };
  ShareToken share;
  if (pipeline.world() != nullptr) {
    // Replicas, if there are several, choose alike.
    share = [&](std::int64_t token) {
      for (const at::Tensor& told :
           pipelines->replica(0).exchange(at::full({1}, token, at::kLong))) {
        if (const auto other = told.item<std::int64_t>(); other >= 0) return other;
      }
      throw Error("no rank has chosen a token");
    };
  }
  return text_of_tokens(generate_tokens(tokens_of_text(prompt), score, options, share));
}

std::vector<std::int64_t> tokens_of_text(const std::string& text) {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (const char letter : text) tokens.push_back(static_cast<unsigned char>(letter));
  return tokens;
}

std::string text_of_tokens(const std::vector<std::int64_t>& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += static_cast<char>(token);
  return text;
}

std::string printable_text(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t size = character_at(text, begin);
    const auto byte = static_cast<unsigned char>(text[begin]);
    constexpr unsigned char kDelete = 0x7f;
    const bool is_control = (byte < ' ' && byte != '\n' && byte != '\t') || byte == kDelete;
    if (size == 0 || is_control) {
      result += '?';
      ++begin;
    } else {
      result.append(text, begin, size);
      begin += size;
    }
  }
  return result;
}

}  // namespace penstock
