#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "penstock/run/train/dataset.h"

namespace penstock {

// What a language model is trained on. A sample is `context` tokens from some place on, and its
// targets are the same shifted by one.
struct TokenDataOptions {
  int context = 64;
  // Tokens are below this. 0: as the data has it, 256 for text.
  int vocabulary = 0;
};

class TokenData;

// The bytes of text files as tokens. Folders stand for all files below them, by path; those that
// hold a zero byte are no text and are left out. Throws Error if a path does not exist or cannot be
// read, and if there is too little text for one sample.
std::shared_ptr<const TokenData> read_text(const std::vector<std::filesystem::path>& paths,
                                           const TokenDataOptions& options);

// A file of tokens, little endian without a header: 4 bytes each if its name ends in .u32, else 2.
// Throws Error if it is empty or cut short, or has a token beyond the vocabulary.
std::shared_ptr<const TokenData> read_tokens(const std::filesystem::path& path,
                                             const TokenDataOptions& options);

class TokenData final : public Dataset, public std::enable_shared_from_this<TokenData> {
 public:
  // `tokens` is one row of bytes, 32-bit numbers or 64-bit numbers.
  TokenData(at::Tensor tokens, const TokenDataOptions& options, std::string description);

  int vocabulary() const { return options_.vocabulary; }
  int context() const { return options_.context; }

  std::int64_t num_samples() const override;
  Batch take(const std::vector<std::int64_t>& samples) const override;
  std::int64_t stride() const override { return options_.context; }
  std::int64_t units_per_sample() const override { return options_.context; }
  std::string unit() const override { return "tokens"; }
  std::shared_ptr<const Dataset> part(const Share& share) const override;
  std::string fingerprint() const override;
  std::string description() const override { return description_; }

 private:
  at::Tensor tokens_;
  TokenDataOptions options_;
  std::string description_;
};

}  // namespace penstock
