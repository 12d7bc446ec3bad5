#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "penstock/run/transport/internal/received_memory.h"
#include "penstock/run/transport/message.h"

// Messages as bytes, for transports between processes. One piece of memory: a header of fixed size,
// one record per value, and the elements of the tensors, each at a multiple of kWireAlignment.
// Those of one large tensor, the tail, may come last, so that they can be sent from where they are.
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
  std::uint64_t tail = 0;  // where that begins; `size` if there is none
  WireLabel label;
};
static_assert(sizeof(WireHeader) <= kWireAlignment);

// Where the bytes of a message go.
struct WireLayout {
  std::size_t words_end = 0;  // of the header and the records
  std::size_t tail = 0;       // as in the header
  std::size_t size = 0;
  std::size_t tail_value = 0;  // the tensor that is the tail, if there is one

  bool has_tail() const { return tail < size; }
};

// The layout of `message`. Throws TransportError on values that cannot travel: tensors that are not
// dense or not in main memory, and kinds other than tensors, None, numbers and lists of these.
//
// Its tail is the largest tensor of at least `least_tail` bytes that nobody changes before it has
// arrived: an activation of a training step, and no view.
WireLayout lay_out(const Message& message,
                   std::size_t least_tail = std::numeric_limits<std::size_t>::max());

enum class Tail { Written, LeftOut };

// Writes `layout.size` bytes, or those before the tail.
void write_message(const WireLabel& label, const Message& message, const WireLayout& layout,
                   std::byte* to, Tail tail = Tail::Written);

// The header at `bytes`, of which at least sizeof(WireHeader) are there. Throws TransportError,
// which names `from_rank`, unless it is of this format and of this program.
WireHeader read_header(const std::byte* bytes, std::uint64_t fingerprint, int from_rank);

// Throws TransportError, which says what came and what was expected, if these differ.
void require_label(const WireHeader& header, const WireLabel& expected, int from_rank);

// The values of the message at `bytes`, which must stay while `memory` is held. Tensors lie there
// and are leaves. Throws TransportError if the bytes contradict themselves.
void read_message(std::byte* bytes, ReceivedMemory& memory, Message& message);

}  // namespace penstock
