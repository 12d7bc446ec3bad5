#include "penstock/run/train/token_data.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/grouped.h"
#include "penstock/base/text.h"
#include "penstock/run/train/text_generation.h"

namespace penstock {
namespace {

constexpr std::size_t kLongestPath = 200;  // in a message

std::string quoted(const std::filesystem::path& path) {
  return quote(path.string(), kLongestPath);
}

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    throw Error(fmt::format("cannot read {}: {}", quoted(path), std::strerror(errno)));
  }
  return text;
}

// The files that a path stands for: itself, or all below it.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) {
    throw Error(fmt::format("cannot read {}: there is no such file or folder", quoted(path)));
  }
  if (!std::filesystem::is_directory(path, failure)) return {path};
  std::vector<std::filesystem::path> files;
  std::filesystem::path last = path;  // what an error is about
  std::filesystem::recursive_directory_iterator entry(path, failure);
  for (; !failure && entry != std::filesystem::end(entry); entry.increment(failure)) {
    last = entry->path();
    std::error_code ignored;  // a link to nowhere is no file
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  if (failure) throw Error(fmt::format("cannot read {}: {}", quoted(last), failure.message()));
  std::sort(files.begin(), files.end());
  return files;
}

std::string all_of(const std::vector<std::filesystem::path>& paths) {
  return paths.size() == 1 ? quoted(paths.front())
                           : fmt::format("{} and {} more", quoted(paths.front()), paths.size() - 1);
}

template <typename Number>
at::Tensor tokens_from(const std::string& bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(Number));
  at::Tensor tokens = at::empty({count}, at::kInt);
  auto* const data = tokens.data_ptr<std::int32_t>();
  for (std::int64_t index = 0; index < count; ++index) {
    Number number = 0;
    std::memcpy(&number, bytes.data() + static_cast<std::size_t>(index) * sizeof(Number),
                sizeof(Number));
    data[index] = static_cast<std::int32_t>(number);
  }
  return tokens;
}

}  // namespace

TokenData::TokenData(at::Tensor tokens, const TokenDataOptions& options, std::string description)
    : tokens_(std::move(tokens)), options_(options), description_(std::move(description)) {}

std::int64_t TokenData::num_samples() const {
  return std::max<std::int64_t>(0, tokens_.size(0) - options_.context);
}

Batch TokenData::take(const std::vector<std::int64_t>& samples) const {
  std::vector<at::Tensor> rows;
  rows.reserve(samples.size());
  for (const std::int64_t begin : samples) {
    rows.push_back(tokens_.slice(0, begin, begin + options_.context + 1));
  }
  const at::Tensor all = at::stack(rows).to(at::kLong);
  return {.inputs = all.slice(1, 0, options_.context).contiguous(),
          .targets = all.slice(1, 1, options_.context + 1).contiguous()};
}

std::shared_ptr<const Dataset> TokenData::part(const Share& share) const {
  const auto place = [this](double fraction) {
    return static_cast<std::int64_t>(fraction * static_cast<double>(tokens_.size(0)));
  };
  auto part = std::make_shared<TokenData>(tokens_.slice(0, place(share.begin), place(share.end)),
                                          options_, description_);
  if (part->num_samples() < 1) {
    throw ArgumentError(
        fmt::format("the data has {} tokens in the part from {:g} to {:g} of it, but a sample "
                    "takes {}; use more "
                    "data or a smaller context",
                    part->tokens_.size(0), share.begin, share.end, options_.context + 1));
  }
  return part;
}

std::string TokenData::fingerprint() const {
  return fingerprint_of(tokens_.data_ptr(), tokens_.nbytes());
}

std::shared_ptr<const TokenData> read_text(const std::vector<std::filesystem::path>& paths,
                                           const TokenDataOptions& options) {
  std::string text;
  int num_left_out = 0;
  for (const std::filesystem::path& path : paths) {
    for (const std::filesystem::path& file : files_of(path)) {
      const std::string part = read_whole(file);
      const bool is_text = part.find('\0') == std::string::npos;
      if (is_text) text += part;
      if (!is_text) ++num_left_out;
    }
  }
  if (static_cast<std::int64_t>(text.size()) <= options.context) {
    throw Error(fmt::format(
        "{}: it has {} of text, but a sample takes {} with its target{}", all_of(paths),
        counted(static_cast<long long>(text.size()), "byte", "bytes"), options.context + 1,
        num_left_out == 0 ? ""
                          : fmt::format("; {} with zero bytes, which text has none of, {} left out",
                                        counted(num_left_out, "file", "files"),
                                        num_left_out == 1 ? "is" : "are")));
  }
  if (options.vocabulary != 0 && options.vocabulary < kNumByteTokens) {
    throw ArgumentError(fmt::format("text is bytes, which need a vocabulary of {}, not {}",
                                    kNumByteTokens, options.vocabulary));
  }
  TokenDataOptions chosen = options;
  if (chosen.vocabulary == 0) chosen.vocabulary = kNumByteTokens;
  const auto size = static_cast<std::int64_t>(text.size());
  at::Tensor tokens = at::empty({size}, at::kByte);
  std::memcpy(tokens.data_ptr(), text.data(), text.size());
  return std::make_shared<TokenData>(std::move(tokens), chosen,
                                     fmt::format("text, {} bytes", grouped(size)));
}

std::shared_ptr<const TokenData> read_tokens(const std::filesystem::path& path,
                                             const TokenDataOptions& options) {
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(fmt::format("cannot read {}: there is no such file", quoted(path)));
  }
  const std::string bytes = read_whole(path);
  const bool is_wide = path.extension() == ".u32";
  const std::size_t token_bytes = is_wide ? sizeof(std::uint32_t) : sizeof(std::uint16_t);
  if (bytes.size() % token_bytes != 0) {
    throw Error(
        fmt::format("{}: a token takes {} bytes, but the file has {}, which is no multiple of it",
                    quoted(path), token_bytes, bytes.size()));
  }
  at::Tensor tokens =
      is_wide ? tokens_from<std::uint32_t>(bytes) : tokens_from<std::uint16_t>(bytes);
  if (tokens.size(0) <= options.context) {
    throw Error(fmt::format("{}: there are {} tokens, but a sample takes {} with its target",
                            quoted(path), tokens.size(0), options.context + 1));
  }
  const std::int64_t largest = tokens.max().item<std::int64_t>();
  const bool is_beyond = options.vocabulary != 0 && largest >= options.vocabulary;
  if (is_beyond || tokens.min().item<std::int64_t>() < 0) {
    throw Error(fmt::format("{}: there is a token {}, but they must be below {}", quoted(path),
                            is_beyond ? std::to_string(largest) : "of 2^31 or more",
                            options.vocabulary == 0 ? "2^31" : std::to_string(options.vocabulary)));
  }
  TokenDataOptions chosen = options;
  if (chosen.vocabulary == 0) chosen.vocabulary = static_cast<int>(largest) + 1;
  return std::make_shared<TokenData>(
      tokens, chosen,
      fmt::format("{} tokens of {} kinds", grouped(tokens.size(0)), chosen.vocabulary));
}

}  // namespace penstock
