#include "penstock/run/data_parallel/internal/flat_buckets.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace penstock {
namespace {

// Whether the elements of `tensor` fill its memory without gaps, in whatever order.
bool is_dense(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

constexpr std::int64_t kAlignment = 64;  // bytes, of libtorch's allocator

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::int64_t aligned_elements(const at::TensorOptions& options) {
  const auto item = static_cast<std::int64_t>(options.dtype().itemsize());
  return std::max<std::int64_t>(1, kAlignment / item);
}

std::int64_t end_of(const Bucket& bucket) {
  if (bucket.places.empty()) return 0;
  const BucketPlace& last = bucket.places.back();
  return round_up(last.offset + last.size, aligned_elements(bucket.options));
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
  return hash ^ (hash >> 29U);
}

std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = bytes.size();
  for (; !bytes.empty(); bytes.remove_prefix(std::min<std::size_t>(8, bytes.size()))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), std::min<std::size_t>(8, bytes.size()));
    hash = mix(hash, word);
  }
  return hash;
}

std::uint64_t hash_of_values(const at::Tensor& parameter) {
  const at::Tensor values = parameter.detach().cpu().contiguous();
  return hash_of({static_cast<const char*>(values.data_ptr()), values.nbytes()});
}

}  // namespace

PlacePart Bucket::part_of(const BucketPlace& place, int slice) const {
  const std::int64_t slice_begin = slice * slice_size;
  const std::int64_t begin = std::max(place.offset, slice_begin);
  const std::int64_t end = std::min(place.offset + place.size, slice_begin + slice_size);
  if (begin >= end) return {};
  return {.begin = begin - place.offset, .in_slice = begin - slice_begin, .size = end - begin};
}

at::Tensor Bucket::slice_of(const at::Tensor& flat, int slice) const {
  return flat.narrow(0, slice * slice_size, slice_size);
}

std::int64_t Bucket::slice_bytes() const {
  return slice_size * static_cast<std::int64_t>(options.dtype().itemsize());
}

std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int num_slices,
                                 std::int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  // What may share a bucket, and the bucket that such parameters are added to.
  using Kind = std::tuple<at::ScalarType, std::string, bool>;
  std::map<Kind, std::size_t> open;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor& parameter = parameters[index];
    const Kind kind(parameter.scalar_type(), parameter.device().str(), parameter.requires_grad());
    const auto found = open.find(kind);
    const bool fits =
        found != open.end() && (end_of(buckets[found->second]) + parameter.numel()) *
                                       static_cast<std::int64_t>(parameter.dtype().itemsize()) <=
                                   bucket_bytes;
    if (!fits) {
      open[kind] = buckets.size();
      buckets.push_back({.options = parameter.options().requires_grad(false),
                         .is_trainable = parameter.requires_grad(),
                         .places = {}});
    }
    Bucket& bucket = buckets[open[kind]];
    bucket.places.push_back({index, end_of(bucket), parameter.numel()});
  }
  for (Bucket& bucket : buckets) {
    const std::int64_t total = round_up(end_of(bucket), num_slices);
    bucket.slice_size = round_up(total / num_slices, aligned_elements(bucket.options));
  }
  return buckets;
}

void make_compact(const at::Tensor& parameter) {
  const bool is_compact = is_dense(parameter) && parameter.storage_offset() == 0 &&
                          parameter.storage().nbytes() == parameter.nbytes();
  if (is_compact) return;
  const at::NoGradGuard no_grad;
  at::Tensor copy = parameter.detach().clone();
  if (!is_dense(copy)) copy = copy.contiguous();
  parameter.set_data(copy);
}

at::Tensor in_memory_order(const at::Tensor& tensor, const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = tensor.detach();
  if (!is_dense(parameter)) return values.contiguous().view(-1);
  const bool has_same_order = is_dense(values) && values.strides() == parameter.strides();
  if (has_same_order) return values.as_strided({values.numel()}, {1});
  at::Tensor copy = at::empty_strided(parameter.sizes(), parameter.strides(), values.options());
  copy.copy_(values);
  return copy.as_strided({copy.numel()}, {1});
}

at::Tensor flatten_into_bucket(const Bucket& bucket, int num_slices,
                               std::span<const at::Tensor> tensors,
                               std::span<const at::Tensor> parameters) {
  const at::NoGradGuard no_grad;
  at::Tensor flat = at::empty({bucket.slice_size * num_slices}, bucket.options);
  std::int64_t end = 0;
  const auto clear_until = [&](std::int64_t offset) {
    if (offset > end) flat.narrow(0, end, offset - end).zero_();
  };
  for (std::size_t index = 0; index < bucket.places.size(); ++index) {
    if (!tensors[index].defined()) continue;
    const BucketPlace& place = bucket.places[index];
    clear_until(place.offset);
    flat.narrow(0, place.offset, place.size)
        .copy_(in_memory_order(tensors[index], parameters[place.parameter]));
    end = place.offset + place.size;
  }
  clear_until(flat.numel());
  return flat;
}

at::Tensor view_as_parameter(const at::Tensor& flat, std::int64_t offset,
                             const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  if (is_dense(parameter)) {
    return flat.as_strided(parameter.sizes(), parameter.strides(), offset).variable_data();
  }
  return flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()).variable_data();
}

NamedTensors unique_tensors(const NamedTensors& tensors, const NamedTensors& excluded) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : excluded) seen.insert(tensor.unsafeGetTensorImpl());
  NamedTensors unique;
  for (const auto& [name, tensor] : tensors) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) unique.emplace_back(name, tensor);
  }
  return unique;
}

std::vector<std::int64_t> fingerprints_of(const NamedTensors& parameters) {
  std::vector<std::int64_t> fingerprints;
  for (const auto& [name, parameter] : parameters) {
    std::uint64_t kind = mix(hash_of(name), static_cast<std::uint64_t>(parameter.scalar_type()));
    kind = mix(kind, parameter.requires_grad() ? 1 : 0);
    for (const std::int64_t size : parameter.sizes()) {
      kind = mix(kind, static_cast<std::uint64_t>(size));
    }
    fingerprints.push_back(static_cast<std::int64_t>(kind));
    fingerprints.push_back(static_cast<std::int64_t>(hash_of_values(parameter)));
  }
  return fingerprints;
}

}  // namespace penstock
