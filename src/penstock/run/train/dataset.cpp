#include "penstock/run/train/dataset.h"

#include <random>

#include <fmt/format.h>

namespace penstock {

std::vector<std::int64_t> draw_samples(const SampleDraw& draw, std::int64_t num_samples) {
  constexpr int kHalf = 32;
  const auto step = static_cast<std::uint64_t>(draw.step);
  std::seed_seq seeds{draw.seed, draw.seed >> kHalf, step,
                      step >> kHalf};  // each taken modulo 2^32
  std::mt19937_64 engine(seeds);
  std::vector<std::int64_t> samples(static_cast<std::size_t>(draw.batch));
  for (std::int64_t& sample : samples) {
    sample = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(num_samples));
  }
  return samples;
}

std::string fingerprint_of(const void* bytes, std::size_t size) {
  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::size_t index = 0; index < size; ++index) {
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[index]) * 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace penstock
