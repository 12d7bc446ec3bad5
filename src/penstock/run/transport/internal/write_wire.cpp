#include <algorithm>
#include <cstring>
#include <string>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/run/transport/internal/wire.h"
#include "penstock/run/transport/internal/wire_record.h"
#include "penstock/run/transport/transport.h"

namespace penstock {
namespace {

std::size_t aligned(std::size_t size) {
  return (size + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
}

[[noreturn]] void refuse(std::size_t index, const std::string& found) {
  throw TransportError(
      fmt::format("value {} of the message is {}; between processes travel dense tensors in main "
                  "memory, None, numbers, and lists of numbers",
                  index, found));
}

WireRecord record_of(const at::Tensor& tensor, std::size_t index) {
  if (!tensor.defined()) return {.kind = WireKind::Undefined};
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.is_quantized()) {
    refuse(index, fmt::format("a tensor of {} on {}", tensor.toString(), tensor.device().str()));
  }
  const bool is_contiguous =
      tensor.is_contiguous() || !tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
  return {.kind = WireKind::Tensor,
          .order = is_contiguous ? WireOrder::Contiguous : WireOrder::Strided,
          .element_type = static_cast<std::int8_t>(tensor.scalar_type()),
          .requires_grad = tensor.requires_grad() ? std::uint8_t{1} : std::uint8_t{0},
          .count = static_cast<std::uint32_t>(tensor.dim())};
}

WireRecord record_of(const c10::IValue& value, std::size_t index) {
  const auto list = [&](WireKind kind) -> WireRecord {
    return {.kind = kind, .count = static_cast<std::uint32_t>(value.toListRef().size())};
  };
  if (value.isTensor()) return record_of(value.toTensor(), index);
  if (value.isNone()) return {.kind = WireKind::None};
  if (value.isBool()) return {.kind = WireKind::Bool};
  if (value.isInt()) return {.kind = WireKind::Int};
  if (value.isDouble()) return {.kind = WireKind::Double};
  if (value.isBoolList()) return list(WireKind::BoolList);
  if (value.isIntList()) return list(WireKind::IntList);
  if (value.isDoubleList()) return list(WireKind::DoubleList);
  refuse(index, fmt::format("of the kind {}", value.tagKind()));
}

// Whether its elements are sent as they are in memory, one after the other.
bool is_as_in_memory(const WireRecord& record, const at::Tensor& tensor) {
  const bool is_plain = !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
  return is_plain && (record.order == WireOrder::Strided || tensor.is_contiguous());
}

// Whether nobody changes it before it has arrived. That is so for what an operator has made for
// autograd: its rank waits for the gradient. Parameters, their slices and sums, and inputs may be
// written to as soon as they are sent.
bool stays(const at::Tensor& tensor) {
  return !tensor.is_leaf() && !tensor.is_view();
}

// Words that follow the record: numbers, or the shape of a tensor and where its elements are.
std::size_t num_words(const WireRecord& record) {
  switch (record.kind) {
    case WireKind::None:
    case WireKind::Undefined:
      return 0;
    case WireKind::Bool:
    case WireKind::Int:
    case WireKind::Double:
      return 1;
    case WireKind::Tensor:
      return 1 + record.count * (record.order == WireOrder::Strided ? 2U : 1U);
    default:
      return record.count;
  }
}

// Writes words one after the other, and the elements of tensors behind all of them.
class Writer {
 public:
  Writer(std::byte* begin, const WireLayout& layout)
      : begin_(begin), word_(begin + sizeof(WireHeader)), elements_(aligned(layout.words_end)) {}

  template <typename Value>
  void put(const Value& value) {
    static_assert(sizeof(Value) == kWireWord);
    std::memcpy(word_, &value, kWireWord);
    word_ += kWireWord;
  }

  void put(at::IntArrayRef values) {
    std::memcpy(word_, values.data(), values.size() * kWireWord);
    word_ += values.size() * kWireWord;
  }

  void put_tensor(const WireRecord& record, const at::Tensor& tensor) {
    put_shape(record, tensor, elements_);
    put_elements(record, tensor, elements_);
    elements_ = aligned(elements_ + tensor.nbytes());
  }

  void put_tail(const WireRecord& record, const at::Tensor& tensor, const WireLayout& layout,
                Tail tail) {
    put_shape(record, tensor, layout.tail);
    if (tail == Tail::Written) put_elements(record, tensor, layout.tail);
  }

 private:
  void put_shape(const WireRecord& record, const at::Tensor& tensor, std::size_t elements) {
    put(static_cast<std::uint64_t>(elements));
    put(tensor.sizes());
    if (record.order == WireOrder::Strided) put(tensor.strides());
  }

  void put_elements(const WireRecord& record, const at::Tensor& tensor, std::size_t elements) {
    if (tensor.numel() == 0) return;
    std::byte* to = begin_ + elements;
    if (is_as_in_memory(record, tensor)) {
      std::memcpy(to, tensor.data_ptr(), tensor.nbytes());
      return;
    }
    const at::NoGradGuard no_grad;
    const auto options = at::TensorOptions().dtype(tensor.scalar_type());
    at::Tensor copy = record.order == WireOrder::Strided
                          ? at::from_blob(to, tensor.sizes(), tensor.strides(), options)
                          : at::from_blob(to, tensor.sizes(), options);
    copy.copy_(tensor);
  }

  std::byte* begin_;
  std::byte* word_;
  std::size_t elements_;  // where the next tensor goes
};

void put_value(Writer& writer, const WireRecord& record, const c10::IValue& value) {
  writer.put(record);
  switch (record.kind) {
    case WireKind::None:
    case WireKind::Undefined:
      break;
    case WireKind::Tensor:
      writer.put_tensor(record, value.toTensor());
      break;
    case WireKind::Bool:
      writer.put(std::int64_t{value.toBool()});
      break;
    case WireKind::Int:
      writer.put(value.toInt());
      break;
    case WireKind::Double:
      writer.put(value.toDouble());
      break;
    case WireKind::BoolList:
      for (const c10::IValue& element : value.toListRef()) {
        writer.put(std::int64_t{element.toBool()});
      }
      break;
    case WireKind::IntList:
      for (const c10::IValue& element : value.toListRef()) writer.put(element.toInt());
      break;
    case WireKind::DoubleList:
      for (const c10::IValue& element : value.toListRef()) writer.put(element.toDouble());
      break;
  }
}

}  // namespace

WireLayout lay_out(const Message& message, std::size_t least_tail) {
  WireLayout layout{.words_end = sizeof(WireHeader)};
  std::size_t elements = 0;  // of all tensors but the tail
  std::size_t tail_size = 0;
  for (std::size_t index = 0; index < message.size(); ++index) {
    const WireRecord record = record_of(message[index], index);
    layout.words_end += kWireWord * (1 + num_words(record));
    if (record.kind != WireKind::Tensor) continue;
    const at::Tensor& tensor = message[index].toTensor();
    elements += aligned(tensor.nbytes());
    if (tensor.nbytes() < std::max(least_tail, tail_size + 1)) continue;
    if (!is_as_in_memory(record, tensor) || !stays(tensor)) continue;
    tail_size = tensor.nbytes();
    layout.tail_value = index;
  }
  layout.tail = aligned(layout.words_end) + elements - aligned(tail_size);
  layout.size = layout.tail + tail_size;
  return layout;
}

void write_message(const WireLabel& label, const Message& message, const WireLayout& layout,
                   std::byte* to, Tail tail) {
  const WireHeader header{.format = kWireFormat,
                          .num_values = static_cast<std::uint32_t>(message.size()),
                          .size = layout.size,
                          .tail = layout.tail,
                          .label = label};
  std::memcpy(to, &header, sizeof(header));
  Writer writer(to, layout);
  for (std::size_t index = 0; index < message.size(); ++index) {
    const WireRecord record = record_of(message[index], index);
    if (layout.has_tail() && index == layout.tail_value) {
      writer.put(record);
      writer.put_tail(record, message[index].toTensor(), layout, tail);
    } else {
      put_value(writer, record, message[index]);
    }
  }
}

}  // namespace penstock
