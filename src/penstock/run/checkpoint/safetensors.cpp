#include "penstock/run/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/internal/files.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::array<std::pair<SafetensorsType, at::ScalarType>, 10> kScalarTypes = {{
    {SafetensorsType::F64, at::kDouble},
    {SafetensorsType::F32, at::kFloat},
    {SafetensorsType::F16, at::kHalf},
    {SafetensorsType::BF16, at::kBFloat16},
    {SafetensorsType::I64, at::kLong},
    {SafetensorsType::I32, at::kInt},
    {SafetensorsType::I16, at::kShort},
    {SafetensorsType::I8, at::kChar},
    {SafetensorsType::U8, at::kByte},
    {SafetensorsType::Bool, at::kBool},
}};

at::ScalarType scalar_type(SafetensorsType type) {
  return std::find_if(kScalarTypes.begin(), kScalarTypes.end(),
                      [type](const auto& row) { return row.first == type; })
      ->second;
}

// The parameters of a sharded stage are there in name only while they are not gathered.
void require_memory(std::string_view name, const at::Tensor& tensor, const std::string& source) {
  if (tensor.numel() == 0 || tensor.storage().nbytes() > 0) return;
  throw CheckpointError(fmt::format(
      "{}: {} has a shape but no memory: its stage is sharded; make the RankState from the stage, "
      "which knows of its slices",
      source, quote(name, 80)));
}

SafetensorsEntry describe(const std::string& name, const at::Tensor& tensor,
                          const std::string& source) {
  require_memory(name, tensor, source);
  const auto* row = std::find_if(kScalarTypes.begin(), kScalarTypes.end(), [&](const auto& each) {
    return each.second == tensor.scalar_type();
  });
  if (row == kScalarTypes.end()) {
    throw CheckpointError(
        fmt::format("{}: {} is a tensor of {}, which safetensors files do not hold", source,
                    quote(name, 80), c10::toString(tensor.scalar_type())));
  }
  return {.name = name, .type = row->first, .shape = tensor.sizes().vec()};
}

std::span<std::byte> bytes_in(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

std::string type_and_shape(at::ScalarType type, at::IntArrayRef shape) {
  return fmt::format("{} of shape [{}]", c10::toString(type), fmt::join(shape, ", "));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_unique<InputFile>(path)) {
  const std::string source = path.string();
  std::string prefix(std::min(kSafetensorsPrefix, file_->size()), '\0');
  file_->read_at(0, std::as_writable_bytes(std::span(prefix)));
  std::string text(read_safetensors_length(prefix, file_->size(), source), '\0');
  file_->read_at(kSafetensorsPrefix, std::as_writable_bytes(std::span(text)));
  data_offset_ = kSafetensorsPrefix + text.size();
  header_ = read_safetensors_header(text, file_->size() - data_offset_, source);
  for (const SafetensorsEntry& entry : header_.entries) entries_.emplace(entry.name, &entry);
}

SafetensorsFile::~SafetensorsFile() = default;

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw CheckpointError(
        fmt::format("{}: has no tensor {}", file_->path().string(), quote(name, 80)));
  }
  return *found->second;
}

void SafetensorsFile::require_fit(std::string_view name, const at::Tensor& tensor) const {
  require_memory(name, tensor, file_->path().string());
  require_same_shape(name, tensor);
}

void SafetensorsFile::require_same_shape(std::string_view name, const at::Tensor& tensor) const {
  const SafetensorsEntry& found = entry(name);
  if (scalar_type(found.type) == tensor.scalar_type() && tensor.sizes() == found.shape) return;
  throw CheckpointError(fmt::format("{}: {} is {}, but the model has {}", file_->path().string(),
                                    quote(name, 80),
                                    type_and_shape(scalar_type(found.type), found.shape),
                                    type_and_shape(tensor.scalar_type(), tensor.sizes())));
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry, const at::Tensor& tensor) const {
  file_->read_at(data_offset_ + entry.begin, bytes_in(tensor));
}

at::Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry& found = entry(name);
  at::Tensor tensor = at::empty(found.shape, at::TensorOptions(scalar_type(found.type)));
  read_bytes(found, tensor);
  return tensor;
}

void SafetensorsFile::read_into(std::string_view name, const at::Tensor& tensor) const {
  require_fit(name, tensor);
  const at::NoGradGuard no_gradients;
  if (tensor.device().is_cpu() && tensor.is_contiguous()) {
    read_bytes(entry(name), tensor);
    tensor.unsafeGetTensorImpl()->bump_version();
  } else {
    tensor.copy_(read(name));
  }
}

WrittenFile write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_gradients;
  SafetensorsHeader header{.entries = {}, .metadata = metadata};
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    header.entries.push_back(describe(name, tensor, path.string()));
    if (!by_name.emplace(name, &tensor).second) {
      throw CheckpointError(
          fmt::format("{}: two tensors are called {}", path.string(), quote(name, 80)));
    }
  }
  place_entries(header.entries);
  const std::string beginning = write_safetensors_header(header, path.string());
  OutputFile file(path);
  file.write(beginning);
  for (const SafetensorsEntry& entry : header.entries) {
    file.write(bytes_in(by_name.at(entry.name)->detach().cpu().contiguous()));
  }
  return file.finish();
}

}  // namespace penstock
