#pragma once

#include <filesystem>
#include <memory>

#include "penstock/run/train/dataset.h"

namespace penstock {

// Samples that are rows of two tensors.
class TensorData final : public Dataset {
 public:
  // Throws ArgumentError unless both have the same number of rows, and at least one.
  TensorData(Batch rows, std::string description);

  const Batch& rows() const { return rows_; }

  std::int64_t num_samples() const override { return rows_.inputs.size(0); }
  Batch take(const std::vector<std::int64_t>& samples) const override;
  std::shared_ptr<const Dataset> part(const Share& share) const override;
  std::string fingerprint() const override;
  std::string description() const override { return description_; }

 private:
  Batch rows_;
  std::string description_;
};

// The tensors "inputs" and "targets" of a file: .safetensors, or what torch.save() writes of a
// dict. Throws Error, with the path, if there is no such file, it is something else, or misses one.
std::shared_ptr<const TensorData> read_tensors(const std::filesystem::path& path);

// Samples to try a model with, when there is no data: a function of the seed.
//   points: 16 numbers each, of 4 classes that a random plane per class decides
//   stripes: pictures of 1 x 12 x 12 with noise, of 4 classes by the direction of the stripes
std::shared_ptr<const TensorData> make_points(std::uint64_t seed);
std::shared_ptr<const TensorData> make_stripes(std::uint64_t seed);

}  // namespace penstock
