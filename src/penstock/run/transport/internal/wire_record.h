#pragma once

#include <cstddef>
#include <cstdint>

// What stands for each value in a message; see wire.h.
namespace penstock {

constexpr std::uint32_t kWireFormat = 0x50530002;  // "PS", version 2

enum class WireKind : std::uint8_t {
  None,
  Undefined,  // a tensor that is none
  Tensor,
  Bool,
  Int,
  Double,
  BoolList,
  IntList,
  DoubleList,
};

enum class WireOrder : std::uint8_t {
  Contiguous,
  Strided,  // dense, in another order: strides follow the sizes
};

// Starts the record of a value. Records are made of words of 8 bytes.
struct WireRecord {
  WireKind kind = WireKind::None;
  WireOrder order = WireOrder::Contiguous;
  std::int8_t element_type = 0;
  std::uint8_t requires_grad = 0;
  std::uint32_t count = 0;  // dimensions of a tensor, elements of a list, otherwise 0
};
constexpr std::size_t kWireWord = 8;
static_assert(sizeof(WireRecord) == kWireWord);

}  // namespace penstock
