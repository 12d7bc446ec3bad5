#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/run/transport/shared_memory/internal/segment.h"

namespace penstock {

// The sending end of a channel. A block that the receiver has given back is used again before a
// new one is made; and if there can be no more, for messages that are smaller than it, too.
class Outbox {
 public:
  // `segment` must outlive it.
  Outbox(const OwnSegment& segment, int to_rank);

  struct Block {
    std::uint32_t number = 0;
    std::byte* data = nullptr;
  };

  // A block of at least `size` bytes, or none while the receiver holds too many. Throws
  // TransportError if the machine has no memory left.
  std::optional<Block> find_block(std::size_t size);

  bool has_room() const;  // in the ring

  // Sends what was written to the block. There must be room.
  void publish(Block block);

 private:
  // Those of one size, tried in turn: the one that was used longest ago is the likeliest to be
  // free.
  struct Blocks {
    std::vector<std::uint32_t> numbers;
    std::size_t next = 0;
  };

  std::optional<Block> take_free(Blocks& blocks);
  std::optional<Block> make_block(std::size_t size);
  std::byte* data_of(std::uint32_t block) const;

  const OwnSegment& segment_;
  int to_rank_;
  Channel channel_;
  std::uint64_t num_published_ = 0;
  mutable std::uint64_t num_taken_ = 0;  // as last seen
  std::size_t heap_used_ = 0;
  std::uint32_t num_blocks_ = 0;
  std::vector<Blocks> blocks_by_size_;
};

}  // namespace penstock
