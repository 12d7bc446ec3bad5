#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace penstock {

// The sum of the squares of floating-point numbers, without rounding: one long integer, in units of
// 2^-2176, in which the square of every finite number of every type has its bits. So the sum does
// not depend on the order of the numbers, nor on who adds which of them, and sums of sums are the
// sum. Only the norm is rounded.
class SquareSum {
 public:
  // Adds the squares of all elements: float, double, half, bfloat16, or complex ones of these; an
  // undefined tensor has none. Sparse tensors count with the values they stand for. Throws
  // ArgumentError on other types.
  void add(const at::Tensor& values);

  SquareSum& operator+=(const SquareSum& other);

  // The square root of the sum: of the double that is nearest to the sum, the nearest double. Not a
  // number if an element is none, else infinite if an element is.
  double norm() const;

  // For messages: a tensor of integers, whose sums have no meaning.
  at::Tensor to_tensor() const;
  // The inverse. Throws ArgumentError on tensors of other sizes and types.
  static SquareSum from_tensor(const at::Tensor& tensor);

  friend bool operator==(const SquareSum&, const SquareSum&) = default;

 private:
  static constexpr int kUnit = -2176;  // the exponent of the lowest bit
  static constexpr std::size_t kNumLimbs = 67;

  template <typename Format>
  void add_elements(const at::Tensor& values);
  template <typename Format>
  void add_block(const typename Format::Value* values, std::size_t count);
  void add_limbs(const std::array<std::uint64_t, 3>& limbs, std::size_t position);

  std::array<std::uint64_t, kNumLimbs> limbs_ = {};  // lowest first
  bool has_infinity_ = false;
  bool has_nan_ = false;
};

}  // namespace penstock
