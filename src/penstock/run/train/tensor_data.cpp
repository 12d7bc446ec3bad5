#include "penstock/run/train/tensor_data.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <numbers>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/checkpoint/safetensors.h"
#include "penstock/run/libtorch/cause.h"

namespace penstock {
namespace {

constexpr std::int64_t kMadeSamples = 1024;
constexpr std::int64_t kMadeClasses = 4;

std::string path_text(const std::filesystem::path& path) {
  constexpr std::size_t kLongest = 200;
  return quote(path.string(), kLongest);
}

at::Generator generator_of(std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  generator.set_current_seed(seed);
  return generator;
}

std::string sizes_text(const at::Tensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.sizes(), " x "));
}

// What torch.save() writes of a dict.
c10::IValue read_pickle(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    return torch::jit::pickle_load(bytes);
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: not a file that torch.save() has written of tensors ({})",
                            path_text(path), cause_of(error)));
  }
}

Batch read_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  return {.inputs = file.read("inputs"), .targets = file.read("targets")};
}

at::Tensor entry_of(const c10::IValue& file, const char* name, const std::filesystem::path& path) {
  if (file.isGenericDict()) {
    const auto dict = file.toGenericDict();
    const auto entry = dict.find(name);
    if (entry != dict.end() && entry->value().isTensor()) return entry->value().toTensor();
  }
  throw Error(fmt::format(
      "{}: there is no tensor \"{}\"; save a dict with the tensors \"inputs\" and \"targets\"",
      path_text(path), name));
}

Batch read_saved(const std::filesystem::path& path) {
  const c10::IValue file = read_pickle(path);
  return {.inputs = entry_of(file, "inputs", path), .targets = entry_of(file, "targets", path)};
}

}  // namespace

TensorData::TensorData(Batch rows, std::string description)
    : rows_(std::move(rows)), description_(std::move(description)) {
  const at::Tensor& inputs = rows_.inputs;
  const at::Tensor& targets = rows_.targets;
  const bool have_rows = inputs.dim() > 0 && targets.dim() > 0 && inputs.numel() > 0;
  if (!have_rows || inputs.size(0) != targets.size(0)) {
    throw ArgumentError(fmt::format(
        "inputs and targets have one row per sample, but the inputs are {} and the targets {}",
        quote(sizes_text(inputs)), quote(sizes_text(targets))));
  }
}

Batch TensorData::take(const std::vector<std::int64_t>& samples) const {
  const at::Tensor index = at::tensor(samples, at::kLong);
  return {.inputs = rows_.inputs.index_select(0, index),
          .targets = rows_.targets.index_select(0, index)};
}

std::shared_ptr<const Dataset> TensorData::part(const Share& share) const {
  const auto place = [this](double fraction) {
    return static_cast<std::int64_t>(fraction * static_cast<double>(num_samples()));
  };
  const std::int64_t begin = place(share.begin);
  const std::int64_t end = place(share.end);
  if (begin >= end) {
    throw ArgumentError(fmt::format("the data has {}, and none in the part from {:g} to {:g} of it",
                                    counted(num_samples(), "sample", "samples"), share.begin,
                                    share.end));
  }
  return std::make_shared<TensorData>(Batch{.inputs = rows_.inputs.slice(0, begin, end),
                                            .targets = rows_.targets.slice(0, begin, end)},
                                      description_);
}

std::string TensorData::fingerprint() const {
  const at::Tensor inputs = rows_.inputs.contiguous();
  const at::Tensor targets = rows_.targets.contiguous();
  return fingerprint_of(inputs.data_ptr(), inputs.nbytes()) +
         fingerprint_of(targets.data_ptr(), targets.nbytes());
}

std::shared_ptr<const TensorData> read_tensors(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(fmt::format("cannot read {}: there is no such file", path_text(path)));
  }
  Batch rows = path.extension() == ".safetensors" ? read_safetensors(path) : read_saved(path);
  const std::string description =
      fmt::format("tensors, {} samples of {}", rows.inputs.size(0), quote(sizes_text(rows.inputs)));
  try {
    return std::make_shared<TensorData>(std::move(rows), description);
  } catch (const ArgumentError& error) {
    throw Error(fmt::format("{}: {}", path_text(path), error.what()));
  }
}

std::shared_ptr<const TensorData> make_points(std::uint64_t seed) {
  constexpr std::int64_t kNumbers = 16;
  at::Generator generator = generator_of(seed);
  const at::Tensor inputs = at::randn({kMadeSamples, kNumbers}, generator);
  const at::Tensor planes = at::randn({kNumbers, kMadeClasses}, generator);
  return std::make_shared<TensorData>(
      Batch{.inputs = inputs, .targets = inputs.mm(planes).argmax(1)},
      fmt::format("{} made-up points of {} classes", kMadeSamples, kMadeClasses));
}

std::shared_ptr<const TensorData> make_stripes(std::uint64_t seed) {
  constexpr std::int64_t kSide = 12;
  constexpr double kNoise = 0.5;
  at::Generator generator = generator_of(seed);
  const at::Tensor classes = at::randint(kMadeClasses, {kMadeSamples}, generator, at::kLong);
  const at::Tensor shifts = at::rand({kMadeSamples, 1, 1}, generator) * (2 * std::numbers::pi);
  const at::Tensor angles =
      classes.to(at::kFloat).view({-1, 1, 1}) * (std::numbers::pi / kMadeClasses);
  const at::Tensor places = at::arange(kSide, at::kFloat);
  const at::Tensor waves =
      (angles.cos() * places.view({1, 1, -1}) + angles.sin() * places.view({1, -1, 1}) + shifts)
          .sin();
  const at::Tensor noise = at::randn({kMadeSamples, kSide, kSide}, generator) * kNoise;
  return std::make_shared<TensorData>(
      Batch{.inputs = (waves + noise).unsqueeze(1), .targets = classes},
      fmt::format("{} made-up pictures of {} classes", kMadeSamples, kMadeClasses));
}

}  // namespace penstock
