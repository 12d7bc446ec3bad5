#include "penstock/run/transport/internal/wire.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"
#include "penstock/run/transport/internal/message_text.h"
#include "penstock/run/transport/transport.h"

namespace penstock {
namespace {

constexpr std::uint32_t kWireFormat = 0x50530002;  // "PS", version 2

enum class ValueKind : std::uint8_t {
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

enum class ElementOrder : std::uint8_t {
  Contiguous,
  Strided,  // dense, in another order: strides follow the sizes
};

// Starts the record of a value. Records are made of words of 8 bytes.
struct Record {
  ValueKind kind = ValueKind::None;
  ElementOrder order = ElementOrder::Contiguous;
  std::int8_t element_type = 0;
  std::uint8_t requires_grad = 0;
  std::uint32_t count = 0;  // dimensions of a tensor, elements of a list, otherwise 0
};
constexpr std::size_t kWord = 8;
static_assert(sizeof(Record) == kWord);

std::size_t aligned(std::size_t size) {
  return (size + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
}

[[noreturn]] void refuse(std::size_t index, const std::string& found) {
  throw TransportError(
      fmt::format("value {} of the message is {}; between processes travel dense tensors in main "
                  "memory, None, numbers, and lists of numbers",
                  index, found));
}

Record record_of(const at::Tensor& tensor, std::size_t index) {
  if (!tensor.defined()) return {.kind = ValueKind::Undefined};
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.is_quantized()) {
    refuse(index, fmt::format("a tensor of {} on {}", tensor.toString(), tensor.device().str()));
  }
  const bool is_contiguous =
      tensor.is_contiguous() || !tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
  return {.kind = ValueKind::Tensor,
          .order = is_contiguous ? ElementOrder::Contiguous : ElementOrder::Strided,
          .element_type = static_cast<std::int8_t>(tensor.scalar_type()),
          .requires_grad = tensor.requires_grad() ? std::uint8_t{1} : std::uint8_t{0},
          .count = static_cast<std::uint32_t>(tensor.dim())};
}

Record record_of(const c10::IValue& value, std::size_t index) {
  const auto list = [&](ValueKind kind) -> Record {
    return {.kind = kind, .count = static_cast<std::uint32_t>(value.toListRef().size())};
  };
  if (value.isTensor()) return record_of(value.toTensor(), index);
  if (value.isNone()) return {.kind = ValueKind::None};
  if (value.isBool()) return {.kind = ValueKind::Bool};
  if (value.isInt()) return {.kind = ValueKind::Int};
  if (value.isDouble()) return {.kind = ValueKind::Double};
  if (value.isBoolList()) return list(ValueKind::BoolList);
  if (value.isIntList()) return list(ValueKind::IntList);
  if (value.isDoubleList()) return list(ValueKind::DoubleList);
  refuse(index, fmt::format("of the kind {}", value.tagKind()));
}

// Whether its elements are sent as they are in memory, one after the other.
bool is_as_in_memory(const Record& record, const at::Tensor& tensor) {
  const bool is_plain = !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
  return is_plain && (record.order == ElementOrder::Strided || tensor.is_contiguous());
}

// What a step may change or free while it is sent is a parameter, or shares memory with one.
bool may_change(const at::Tensor& tensor) {
  return tensor.is_view() || (tensor.is_leaf() && tensor.requires_grad());
}

// Words that follow the record: numbers, or the shape of a tensor and where its elements are.
std::size_t num_words(const Record& record) {
  switch (record.kind) {
    case ValueKind::None:
    case ValueKind::Undefined:
      return 0;
    case ValueKind::Bool:
    case ValueKind::Int:
    case ValueKind::Double:
      return 1;
    case ValueKind::Tensor:
      return 1 + record.count * (record.order == ElementOrder::Strided ? 2U : 1U);
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
    static_assert(sizeof(Value) == kWord);
    std::memcpy(word_, &value, kWord);
    word_ += kWord;
  }

  void put(at::IntArrayRef values) {
    std::memcpy(word_, values.data(), values.size() * kWord);
    word_ += values.size() * kWord;
  }

  void put_tensor(const Record& record, const at::Tensor& tensor) {
    put_shape(record, tensor, elements_);
    put_elements(record, tensor, elements_);
    elements_ = aligned(elements_ + tensor.nbytes());
  }

  void put_tail(const Record& record, const at::Tensor& tensor, const WireLayout& layout,
                Tail tail) {
    put_shape(record, tensor, layout.tail);
    if (tail == Tail::Written) put_elements(record, tensor, layout.tail);
  }

 private:
  void put_shape(const Record& record, const at::Tensor& tensor, std::size_t elements) {
    put(static_cast<std::uint64_t>(elements));
    put(tensor.sizes());
    if (record.order == ElementOrder::Strided) put(tensor.strides());
  }

  void put_elements(const Record& record, const at::Tensor& tensor, std::size_t elements) {
    if (tensor.numel() == 0) return;
    std::byte* to = begin_ + elements;
    if (is_as_in_memory(record, tensor)) {
      std::memcpy(to, tensor.data_ptr(), tensor.nbytes());
      return;
    }
    const at::NoGradGuard no_grad;
    const auto options = at::TensorOptions().dtype(tensor.scalar_type());
    at::Tensor copy = record.order == ElementOrder::Strided
                          ? at::from_blob(to, tensor.sizes(), tensor.strides(), options)
                          : at::from_blob(to, tensor.sizes(), options);
    copy.copy_(tensor);
  }

  std::byte* begin_;
  std::byte* word_;
  std::size_t elements_;  // where the next tensor goes
};

void put_value(Writer& writer, const Record& record, const c10::IValue& value) {
  writer.put(record);
  switch (record.kind) {
    case ValueKind::None:
    case ValueKind::Undefined:
      break;
    case ValueKind::Tensor:
      writer.put_tensor(record, value.toTensor());
      break;
    case ValueKind::Bool:
      writer.put(std::int64_t{value.toBool()});
      break;
    case ValueKind::Int:
      writer.put(value.toInt());
      break;
    case ValueKind::Double:
      writer.put(value.toDouble());
      break;
    case ValueKind::BoolList:
      for (const c10::IValue& element : value.toListRef()) {
        writer.put(std::int64_t{element.toBool()});
      }
      break;
    case ValueKind::IntList:
      for (const c10::IValue& element : value.toListRef()) writer.put(element.toInt());
      break;
    case ValueKind::DoubleList:
      for (const c10::IValue& element : value.toListRef()) writer.put(element.toDouble());
      break;
  }
}

// Reads words one after the other, and refuses to leave the message.
class Reader {
 public:
  Reader(std::byte* begin, std::size_t size)
      : begin_(begin), size_(size), position_(sizeof(WireHeader)) {}

  template <typename Value>
  Value take() {
    static_assert(sizeof(Value) == kWord);
    Value value;
    std::memcpy(&value, take_words(1), kWord);
    return value;
  }

  at::IntArrayRef take_sizes(std::size_t count) {
    return {reinterpret_cast<const std::int64_t*>(take_words(count)), count};
  }

  void require_words(std::size_t count) const { require(count <= (size_ - position_) / kWord); }

  std::byte* elements_at(std::uint64_t offset, std::uint64_t size) const {
    require(offset % kWireAlignment == 0 && offset <= size_ && size <= size_ - offset);
    return begin_ + offset;
  }

  static void require(bool condition) {
    if (!condition) throw TransportError("a message contradicts itself; memory was overwritten");
  }

 private:
  std::byte* take_words(std::size_t count) {
    require_words(count);
    std::byte* word = begin_ + position_;
    position_ += count * kWord;
    return word;
  }

  std::byte* begin_;
  std::size_t size_;
  std::size_t position_;
};

// The bytes that elements of such a shape take in memory without gaps.
std::uint64_t bytes_of(at::ScalarType type, at::IntArrayRef sizes) {
  std::uint64_t bytes = c10::elementSize(type);
  for (const std::int64_t size : sizes) {
    Reader::require(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes));
  }
  return bytes;
}

// A shape with strides must not reach beyond the memory that it has without them.
void require_dense(at::IntArrayRef sizes, at::IntArrayRef strides, std::uint64_t num_elements) {
  std::uint64_t last = 0;
  for (std::size_t dimension = 0; dimension < sizes.size(); ++dimension) {
    std::uint64_t reach = 0;
    Reader::require(sizes[dimension] > 0 && strides[dimension] >= 0 &&
                    !__builtin_mul_overflow(sizes[dimension] - 1, strides[dimension], &reach) &&
                    !__builtin_add_overflow(last, reach, &last));
  }
  Reader::require(last < num_elements);
}

at::Tensor take_tensor(Reader& reader, const Record& record, ReceivedMemory& memory) {
  const auto offset = reader.take<std::uint64_t>();
  const at::IntArrayRef sizes = reader.take_sizes(record.count);
  const auto type = static_cast<at::ScalarType>(record.element_type);
  const std::uint64_t bytes = bytes_of(type, sizes);
  std::byte* elements = reader.elements_at(offset, bytes);
  const bool has_strides = record.order == ElementOrder::Strided;
  const at::IntArrayRef strides = has_strides ? reader.take_sizes(record.count) : at::IntArrayRef();
  if (has_strides) require_dense(sizes, strides, bytes / c10::elementSize(type));

  memory.hold();
  auto maker = at::for_blob(elements, sizes);
  maker.options(at::TensorOptions().dtype(type)).context(&memory, [](void* holder) {
    static_cast<ReceivedMemory*>(holder)->release();
  });
  if (has_strides) maker.strides(strides);
  at::Tensor tensor = maker.make_tensor();
  if (record.requires_grad != 0) tensor.requires_grad_();
  return tensor;
}

template <typename Element, typename Word>
c10::List<Element> take_list(Reader& reader, const Record& record) {
  reader.require_words(record.count);
  c10::List<Element> list;
  list.reserve(record.count);
  for (std::uint32_t index = 0; index < record.count; ++index) {
    list.push_back(static_cast<Element>(reader.take<Word>()));
  }
  return list;
}

c10::IValue take_value(Reader& reader, ReceivedMemory& memory) {
  const auto record = reader.take<Record>();
  switch (record.kind) {
    case ValueKind::None:
      return {};
    case ValueKind::Undefined:
      return at::Tensor();
    case ValueKind::Tensor:
      return take_tensor(reader, record, memory);
    case ValueKind::Bool:
      return reader.take<std::int64_t>() != 0;
    case ValueKind::Int:
      return reader.take<std::int64_t>();
    case ValueKind::Double:
      return reader.take<double>();
    case ValueKind::BoolList:
      return take_list<bool, std::int64_t>(reader, record);
    case ValueKind::IntList:
      return take_list<std::int64_t, std::int64_t>(reader, record);
    case ValueKind::DoubleList:
      return take_list<double, double>(reader, record);
  }
  Reader::require(false);
  return {};
}

}  // namespace

WireLayout lay_out(const Message& message, std::size_t least_tail) {
  WireLayout layout{.words_end = sizeof(WireHeader)};
  std::size_t elements = 0;  // of all tensors but the tail
  std::size_t tail_size = 0;
  for (std::size_t index = 0; index < message.size(); ++index) {
    const Record record = record_of(message[index], index);
    layout.words_end += kWord * (1 + num_words(record));
    if (record.kind != ValueKind::Tensor) continue;
    const at::Tensor& tensor = message[index].toTensor();
    elements += aligned(tensor.nbytes());
    if (tensor.nbytes() < std::max(least_tail, tail_size + 1)) continue;
    if (!is_as_in_memory(record, tensor) || may_change(tensor)) continue;
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
    const Record record = record_of(message[index], index);
    if (layout.has_tail() && index == layout.tail_value) {
      writer.put(record);
      writer.put_tail(record, message[index].toTensor(), layout, tail);
    } else {
      put_value(writer, record, message[index]);
    }
  }
}

WireHeader read_header(const std::byte* bytes, std::uint64_t fingerprint, int from_rank) {
  WireHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.format != kWireFormat) {
    throw TransportError(
        fmt::format("rank {} sent a message in another format ({:#x}, expected {:#x}); all ranks "
                    "must run the same version of Penstock",
                    from_rank, header.format, kWireFormat));
  }
  if (header.label.fingerprint != fingerprint) {
    throw TransportError(
        fmt::format("rank {} runs another program: it sent {} of program {:016x}, but this rank "
                    "runs {:016x}",
                    from_rank, describe(header.label.key), header.label.fingerprint, fingerprint));
  }
  return header;
}

void require_label(const WireHeader& header, const WireLabel& expected, int from_rank) {
  if (header.label == expected) return;
  throw TransportError(fmt::format(
      "rank {} sent {} in step {}, but expected were {} in step {}; all ranks must run the same "
      "steps",
      from_rank, describe(header.label.key), header.label.step, describe(expected.key),
      expected.step));
}

void read_message(std::byte* bytes, ReceivedMemory& memory, Message& message) {
  WireHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  message.clear();
  message.reserve(header.num_values);
  Reader reader(bytes, header.size);
  for (std::uint32_t index = 0; index < header.num_values; ++index) {
    message.push_back(take_value(reader, memory));
  }
}

}  // namespace penstock
