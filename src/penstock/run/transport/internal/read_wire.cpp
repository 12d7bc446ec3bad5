#include <cstring>

#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <fmt/format.h>

#include "penstock/run/transport/internal/message_text.h"
#include "penstock/run/transport/internal/wire.h"
#include "penstock/run/transport/internal/wire_record.h"
#include "penstock/run/transport/transport.h"

namespace penstock {
namespace {

// Reads words one after the other, and refuses to leave the message.
class Reader {
 public:
  Reader(std::byte* begin, std::size_t size)
      : begin_(begin), size_(size), position_(sizeof(WireHeader)) {}

  template <typename Value>
  Value take() {
    static_assert(sizeof(Value) == kWireWord);
    Value value;
    std::memcpy(&value, take_words(1), kWireWord);
    return value;
  }

  at::IntArrayRef take_sizes(std::size_t count) {
    return {reinterpret_cast<const std::int64_t*>(take_words(count)), count};
  }

  void require_words(std::size_t count) const { require(count <= (size_ - position_) / kWireWord); }

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
    position_ += count * kWireWord;
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

at::Tensor take_tensor(Reader& reader, const WireRecord& record, ReceivedMemory& memory) {
  const auto offset = reader.take<std::uint64_t>();
  const at::IntArrayRef sizes = reader.take_sizes(record.count);
  const auto type = static_cast<at::ScalarType>(record.element_type);
  const std::uint64_t bytes = bytes_of(type, sizes);
  std::byte* elements = reader.elements_at(offset, bytes);
  const bool has_strides = record.order == WireOrder::Strided;
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
c10::List<Element> take_list(Reader& reader, const WireRecord& record) {
  reader.require_words(record.count);
  c10::List<Element> list;
  list.reserve(record.count);
  for (std::uint32_t index = 0; index < record.count; ++index) {
    list.push_back(static_cast<Element>(reader.take<Word>()));
  }
  return list;
}

c10::IValue take_value(Reader& reader, ReceivedMemory& memory) {
  const auto record = reader.take<WireRecord>();
  switch (record.kind) {
    case WireKind::None:
      return {};
    case WireKind::Undefined:
      return at::Tensor();
    case WireKind::Tensor:
      return take_tensor(reader, record, memory);
    case WireKind::Bool:
      return reader.take<std::int64_t>() != 0;
    case WireKind::Int:
      return reader.take<std::int64_t>();
    case WireKind::Double:
      return reader.take<double>();
    case WireKind::BoolList:
      return take_list<bool, std::int64_t>(reader, record);
    case WireKind::IntList:
      return take_list<std::int64_t, std::int64_t>(reader, record);
    case WireKind::DoubleList:
      return take_list<double, double>(reader, record);
  }
  Reader::require(false);
  return {};
}

}  // namespace

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
