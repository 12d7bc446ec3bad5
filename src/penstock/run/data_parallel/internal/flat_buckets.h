#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/run/stage/stage_module.h"

// Parameters laid out one after the other in flat memory, each at a multiple of 64 bytes as an
// allocator would place it, so that kernels see the alignment they see without a bucket:
//
//   | weight          | bias |..| weight      |..|    a bucket; dots are padding
//   |     slice of replica 0    |     replica 1   |   slices of equal size
namespace penstock {

// A parameter, and where its elements are in the bucket, in the order of its own memory.
struct BucketPlace {
  std::size_t parameter = 0;  // index in the list that the layout was made of
  std::int64_t offset = 0;    // elements
  std::int64_t size = 0;
};

// The part of a place that falls into a slice.
struct PlacePart {
  std::int64_t begin = 0;     // in the parameter
  std::int64_t in_slice = 0;  // where that is in the slice
  std::int64_t size = 0;      // may be 0
};

// Parameters of one type and device that are gathered or reduced together.
struct Bucket {
  at::TensorOptions options;
  bool is_trainable = false;
  std::vector<BucketPlace> places;
  std::int64_t slice_size = 0;  // elements

  PlacePart part_of(const BucketPlace& place, int slice) const;
  at::Tensor slice_of(const at::Tensor& flat, int slice) const;
  std::int64_t slice_bytes() const;
};

// Parameters in their order, as many to a bucket as fit; a larger one has a bucket to itself.
std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int num_slices,
                                 std::int64_t bucket_bytes);

// Gives a parameter that is a part of something larger, or has gaps, memory of its own.
void make_compact(const at::Tensor& parameter);

// The elements of `tensor` in the order in which `parameter` has its own, if that is dense: one
// dimension. A view if the order is the same.
at::Tensor in_memory_order(const at::Tensor& tensor, const at::Tensor& parameter);

// One tensor per place of the bucket, in flat memory; zero where a tensor is undefined, and between
// them.
at::Tensor flatten_into_bucket(const Bucket& bucket, int num_slices,
                               std::span<const at::Tensor> tensors,
                               std::span<const at::Tensor> parameters);

// A part of `flat` in the shape of `parameter`; the inverse of in_memory_order().
at::Tensor view_as_parameter(const at::Tensor& flat, std::int64_t offset,
                             const at::Tensor& parameter);

// Each tensor once, under its first name, without those among `excluded`.
NamedTensors unique_tensors(const NamedTensors& tensors, const NamedTensors& excluded = {});

// Two numbers per parameter: what it is, and what its values are.
std::vector<std::int64_t> fingerprints_of(const NamedTensors& parameters);

}  // namespace penstock
