#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace penstock {

struct Batch {
  at::Tensor inputs;   // one row per sample
  at::Tensor targets;  // likewise
};

// A part of a dataset: the samples from `begin` of it to `end`, both from 0 to 1.
struct Share {
  double begin = 0;
  double end = 1;
};

// Samples to train on or to evaluate with, numbered from 0. Safe from any thread.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  Dataset(Dataset&&) = delete;
  Dataset& operator=(Dataset&&) = delete;
  virtual ~Dataset() = default;

  virtual std::int64_t num_samples() const = 0;
  virtual Batch take(const std::vector<std::int64_t>& samples) const = 0;

  // Samples this far apart have nothing in common, so that every `stride`th covers the data once.
  virtual std::int64_t stride() const { return 1; }
  // What the speed of a run counts: tokens of a text, samples otherwise.
  virtual std::int64_t units_per_sample() const { return 1; }
  virtual std::string unit() const { return "samples"; }

  // Throws ArgumentError if that leaves no sample.
  virtual std::shared_ptr<const Dataset> part(const Share& share) const = 0;

  // Of the contents: another one for other data. A run that goes on compares it.
  virtual std::string fingerprint() const = 0;
  // For people: "text, 81 236 bytes".
  virtual std::string description() const = 0;
};

// The samples of a training batch, drawn with replacement: a function of these numbers and nothing
// else, so that a run that goes on draws what it would have drawn.
struct SampleDraw {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  int batch = 1;
};
std::vector<std::int64_t> draw_samples(const SampleDraw& draw, std::int64_t num_samples);

// A fingerprint of bytes: 64 bits in hexadecimal, no protection against ill will.
std::string fingerprint_of(const void* bytes, std::size_t size);

}  // namespace penstock
