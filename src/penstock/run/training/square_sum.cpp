#include "penstock/run/training/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

__extension__ using Wide = unsigned __int128;

// How a type keeps a number: (-1)^sign * mantissa * 2^(exponent - kExponentOffset), where the
// mantissa has one more bit than is written, except for exponent 0, which counts as 1.
template <typename ValueType, typename BitsType, typename SquareType, int mantissa_bits,
          int exponent_bits, std::size_t num_lanes>
struct NumberFormat {
  using Value = ValueType;
  using Bits = BitsType;
  using Square = SquareType;  // holds 2^15 squares of mantissas
  static constexpr int kMantissaBits = mantissa_bits;
  static constexpr std::size_t kNumExponents = std::size_t{1} << exponent_bits;
  static constexpr int kExponentOffset = (1 << (exponent_bits - 1)) - 1 + mantissa_bits;
  static constexpr std::size_t kNumLanes = num_lanes;

  static std::size_t exponent_of(Bits bits) {
    return static_cast<std::size_t>(bits >> kMantissaBits) & (kNumExponents - 1);
  }
  static Square square_of(Bits bits, std::size_t exponent) {
    constexpr Square kHiddenBit = Square{1} << kMantissaBits;
    const Square mantissa =
        (static_cast<Square>(bits) & (kHiddenBit - 1)) | (exponent != 0 ? kHiddenBit : Square{0});
    return mantissa * mantissa;
  }
};
using Binary32 = NumberFormat<float, std::uint32_t, std::uint64_t, 23, 8, 4>;
using Binary64 = NumberFormat<double, std::uint64_t, Wide, 52, 11, 1>;
using Binary16 = NumberFormat<c10::Half, std::uint16_t, std::uint64_t, 10, 5, 4>;
using Brain16 = NumberFormat<c10::BFloat16, std::uint16_t, std::uint64_t, 7, 8, 4>;

constexpr unsigned kLimbBits = 64;

// `value` shifted up by less than a limb.
std::array<std::uint64_t, 3> shifted(Wide value, unsigned shift) {
  const auto low = static_cast<std::uint64_t>(value);
  const auto high = static_cast<std::uint64_t>(value >> kLimbBits);
  if (shift == 0) return {low, high, 0};
  const unsigned rest = kLimbBits - shift;
  return {low << shift, (high << shift) | (low >> rest), high >> rest};
}

}  // namespace

void SquareSum::add_limbs(const std::array<std::uint64_t, 3>& limbs, std::size_t position) {
  std::uint64_t carry = 0;
  for (std::size_t index = 0; position + index < kNumLimbs; ++index) {
    if (index >= limbs.size() && carry == 0) return;
    const Wide sum =
        Wide{limbs_[position + index]} + (index < limbs.size() ? limbs[index] : 0) + carry;
    limbs_[position + index] = static_cast<std::uint64_t>(sum);
    carry = static_cast<std::uint64_t>(sum >> kLimbBits);
  }
}

// Squares of numbers with the same exponent are whole multiples of one power of two, so they are
// added as integers, one sum per exponent. Neighbours use different lanes, lest each wait for the
// one before to be stored.
template <typename Format>
void SquareSum::add_block(const typename Format::Value* values, std::size_t count) {
  using Bits = typename Format::Bits;
  constexpr std::size_t kLanes = Format::kNumLanes;
  std::array<std::array<typename Format::Square, Format::kNumExponents>, kLanes> sums{};
  const auto add = [&](std::size_t index, std::size_t lane) {
    const Bits bits = std::bit_cast<Bits>(values[index]);
    const std::size_t exponent = Format::exponent_of(bits);
    sums[lane][exponent] += Format::square_of(bits, exponent);
  };
  std::size_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(index + lane, lane);
  }
  for (; index < count; ++index) add(index, 0);

  for (std::size_t exponent = 0; exponent < Format::kNumExponents; ++exponent) {
    Wide sum = 0;
    for (const auto& lane : sums) sum += lane[exponent];
    if (sum == 0) continue;
    if (exponent == Format::kNumExponents - 1) {
      const bool has_nan = std::any_of(values, values + count, [](auto value) {
        return std::isnan(static_cast<double>(value));
      });
      (has_nan ? has_nan_ : has_infinity_) = true;
      continue;
    }
    const int scale =
        static_cast<int>(std::max<std::size_t>(exponent, 1)) - Format::kExponentOffset;
    const auto bit = static_cast<unsigned>(2 * scale - kUnit);
    add_limbs(shifted(sum, bit % kLimbBits), bit / kLimbBits);
  }
}

template <typename Format>
void SquareSum::add_elements(const at::Tensor& values) {
  constexpr std::size_t kBlock = Format::kNumLanes << 14U;
  const auto* data = values.data_ptr<typename Format::Value>();
  const auto count = static_cast<std::size_t>(values.numel());
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    add_block<Format>(data + begin, std::min(kBlock, count - begin));
  }
}

void SquareSum::add(const at::Tensor& values) {
  if (!values.defined()) return;
  const at::NoGradGuard no_grad;
  at::Tensor dense = values.is_sparse() ? values.coalesce().values() : values.detach();
  if (dense.is_complex()) dense = at::view_as_real(dense);
  if (!dense.device().is_cpu()) dense = dense.cpu();
  if (!dense.is_non_overlapping_and_dense()) dense = dense.contiguous();
  switch (dense.scalar_type()) {
    case at::kFloat:
      return add_elements<Binary32>(dense);
    case at::kDouble:
      return add_elements<Binary64>(dense);
    case at::kHalf:
      return add_elements<Binary16>(dense);
    case at::kBFloat16:
      return add_elements<Brain16>(dense);
    default:
      throw ArgumentError(
          fmt::format("a tensor of type {} has no norm; expected float, double, half or bfloat16",
                      c10::toString(dense.scalar_type())));
  }
}

SquareSum& SquareSum::operator+=(const SquareSum& other) {
  std::uint64_t carry = 0;
  for (std::size_t index = 0; index < kNumLimbs; ++index) {
    const Wide sum = Wide{limbs_[index]} + other.limbs_[index] + carry;
    limbs_[index] = static_cast<std::uint64_t>(sum);
    carry = static_cast<std::uint64_t>(sum >> kLimbBits);
  }
  has_infinity_ = has_infinity_ || other.has_infinity_;
  has_nan_ = has_nan_ || other.has_nan_;
  return *this;
}

double SquareSum::norm() const {
  if (has_nan_) return std::numeric_limits<double>::quiet_NaN();
  if (has_infinity_) return std::numeric_limits<double>::infinity();
  std::size_t top = kNumLimbs;
  while (top > 0 && limbs_[top - 1] == 0) --top;
  if (top == 0) return 0;

  // The highest 64 bits, the first of them a one, and whether any bit below is one.
  const auto limb = [this, top](std::size_t below) -> std::uint64_t {
    return below < top ? limbs_[top - 1 - below] : 0;
  };
  const auto shift = static_cast<unsigned>(std::countl_zero(limb(0)));
  const std::uint64_t window =
      shift == 0 ? limb(0) : (limb(0) << shift) | (limb(1) >> (kLimbBits - shift));
  bool has_more = (limb(1) << shift) != 0;
  for (std::size_t below = 2; below < top; ++below) has_more = has_more || limb(below) != 0;

  // Of those, a double keeps 53: to the nearest, and to an even one if two are.
  constexpr unsigned kDropped = 11;
  constexpr std::uint64_t kHalf = std::uint64_t{1} << (kDropped - 1);
  std::uint64_t kept = window >> kDropped;
  const std::uint64_t rest = window & (2 * kHalf - 1);
  if (rest > kHalf || (rest == kHalf && (has_more || kept % 2 != 0))) ++kept;

  int exponent =
      static_cast<int>(kLimbBits * (top - 1) + kDropped) - static_cast<int>(shift) + kUnit;
  auto value = static_cast<double>(kept);
  if (exponent % 2 != 0) {
    value *= 2;
    --exponent;
  }
  return std::ldexp(std::sqrt(value), exponent / 2);
}

at::Tensor SquareSum::to_tensor() const {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(kNumLimbs + 1)}, at::kLong);
  auto* data = tensor.data_ptr<std::int64_t>();
  std::transform(limbs_.begin(), limbs_.end(), data,
                 [](std::uint64_t limb) { return static_cast<std::int64_t>(limb); });
  data[kNumLimbs] = (has_nan_ ? 2 : 0) + (has_infinity_ ? 1 : 0);
  return tensor;
}

SquareSum SquareSum::from_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() != at::kLong ||
      tensor.numel() != static_cast<std::int64_t>(kNumLimbs + 1)) {
    throw ArgumentError(fmt::format("expected a sum of squares, which is {} integers, but got {}",
                                    kNumLimbs + 1,
                                    tensor.defined() ? fmt::format("{}", tensor.numel()) : "none"));
  }
  const at::Tensor dense = tensor.contiguous();
  const auto* data = dense.data_ptr<std::int64_t>();
  SquareSum sum;
  std::transform(data, data + kNumLimbs, sum.limbs_.begin(),
                 [](std::int64_t limb) { return static_cast<std::uint64_t>(limb); });
  sum.has_nan_ = (data[kNumLimbs] & 2) != 0;
  sum.has_infinity_ = (data[kNumLimbs] & 1) != 0;
  return sum;
}

}  // namespace penstock
