#pragma once

#include <algorithm>
#include <cstddef>

#include "penstock/run/transport/internal/wire.h"
#include "penstock/run/transport/message.h"

namespace penstock {

// The messages of a backend that a message is made of. The head is all of it but for large ones:
// these have a tail, which is sent from where it is, without a copy. The rest is what the receiver
// had no room for.
enum class Part { Head, Tail, Rest };

// Backends tell messages apart by a number of 31 bits.
constexpr unsigned kStageBits = 11;
constexpr unsigned kMicrobatchBits = 17;
constexpr unsigned kPartBits = 2;

inline int tag_of(MessageKey key, Part part) {
  auto tag = static_cast<unsigned>(key.stage);
  tag = tag << kMicrobatchBits | static_cast<unsigned>(key.microbatch);
  tag = tag << 1U | (key.direction == Direction::Backward ? 1U : 0U);
  tag = tag << kPartBits | static_cast<unsigned>(part);
  return static_cast<int>(tag);
}

// How many bytes the receiver waits for in the head and in the tail of the next message with a key,
// before it knows what comes. Both ends compute it from the messages before that.
struct Rooms {
  std::size_t head = 4096;  // of the first one; a header fits in any case
  std::size_t tail = 0;     // 0: it waits for none. Otherwise one comes, whatever is in it

  std::size_t total() const { return head + tail; }

  // Whether they are just those of a message with such a tail.
  bool fit(const WireLayout& layout) const {
    return layout.has_tail() && head == layout.tail && total() == layout.size;
  }

  // After a message of `size` bytes with a tail from `tail_begin` on.
  Rooms after(std::size_t size, std::size_t tail_begin) const {
    if (tail_begin < size) return {.head = tail_begin, .tail = size - tail_begin};
    return {.head = std::max(head, size), .tail = 0};
  }
};

}  // namespace penstock
