#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/run/transport/internal/received_memory.h"
#include "penstock/run/transport/message.h"

// Messages as bytes, for transports between processes. One piece of memory: a header of fixed size,
// one record per value, and the elements of the tensors, each at a multiple of kWireAlignment.
// Shapes and kinds may differ from message to message. Both ends have the same byte order.
namespace penstock {

constexpr std::size_t kWireAlignment = 64;

// What a message is: of which program, in which step, for whom.
struct WireLabel {
  std::uint64_t fingerprint = 0;
  std::int64_t step = 0;
  MessageKey key;

  friend bool operator==(const WireLabel&, const WireLabel&) = default;
};

struct WireHeader {
  std::uint32_t format = 0;
  std::uint32_t num_values = 0;
  std::uint64_t size = 0;  // of the whole message, in bytes
  WireLabel label;
};
static_assert(sizeof(WireHeader) <= kWireAlignment);

// Bytes that `message` takes. Throws TransportError on values that cannot travel: tensors that are
// not dense or not in main memory, and kinds other than tensors, None, numbers and lists of these.
std::size_t wire_size(const Message& message);

// Writes wire_size(message) bytes.
void write_message(const WireLabel& label, const Message& message, std::size_t size, std::byte* to);

// The header at `bytes`, of which at least sizeof(WireHeader) are there. Throws TransportError,
// which names `from_rank`, unless it is of this format and of this program.
WireHeader read_header(const std::byte* bytes, std::uint64_t fingerprint, int from_rank);

// Throws TransportError, which says what came and what was expected, if these differ.
void require_label(const WireHeader& header, const WireLabel& expected, int from_rank);

// The values of the message at `bytes`, which must stay while `memory` is held. Tensors lie there
// and are leaves. Throws TransportError if the bytes contradict themselves.
void read_message(std::byte* bytes, ReceivedMemory& memory, Message& message);

}  // namespace penstock
