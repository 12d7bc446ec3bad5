#include "penstock/run/transport/shared_memory/internal/outbox.h"

#include "penstock/base/assert.h"
#include "penstock/run/transport/internal/size_class.h"

namespace penstock {

Outbox::Outbox(const OwnSegment& segment, int to_rank)
    : segment_(segment), to_rank_(to_rank), channel_(segment.channel_to(to_rank)) {}

std::byte* Outbox::data_of(std::uint32_t block) const {
  return channel_.heap + channel_.block_offsets[block].load(std::memory_order_relaxed);
}

std::optional<Outbox::Block> Outbox::take_free(Blocks& blocks) {
  for (std::size_t count = 0; count < blocks.numbers.size(); ++count) {
    const std::uint32_t block = blocks.numbers[blocks.next];
    blocks.next = blocks.next + 1 == blocks.numbers.size() ? 0 : blocks.next + 1;
    if (channel_.is_block_busy[block].load(std::memory_order_acquire) != 0) continue;
    channel_.is_block_busy[block].store(1, std::memory_order_relaxed);
    return Block{block, data_of(block)};
  }
  return std::nullopt;
}

std::optional<Outbox::Block> Outbox::find_block(std::size_t size) {
  const SizeClass size_class = size_class_of(size);
  if (blocks_by_size_.size() <= size_class.number) blocks_by_size_.resize(size_class.number + 1);
  Blocks& blocks = blocks_by_size_[size_class.number];
  std::optional<Block> block = take_free(blocks);
  if (block) return block;
  block = make_block(size_class.bytes);
  if (block) {
    blocks.numbers.push_back(block->number);
    return block;
  }
  for (std::size_t larger = size_class.number + 1; larger < blocks_by_size_.size(); ++larger) {
    block = take_free(blocks_by_size_[larger]);
    if (block) return block;
  }
  return std::nullopt;
}

std::optional<Outbox::Block> Outbox::make_block(std::size_t size) {
  if (num_blocks_ == channel_.shape.num_blocks) return std::nullopt;
  if (size > channel_.shape.heap_size - heap_used_) return std::nullopt;
  segment_.reserve(to_rank_, heap_used_, size);
  const std::uint32_t block = num_blocks_++;
  channel_.block_offsets[block].store(heap_used_, std::memory_order_relaxed);
  channel_.is_block_busy[block].store(1, std::memory_order_relaxed);
  heap_used_ += size;
  return Block{block, data_of(block)};
}

bool Outbox::has_room() const {
  if (num_published_ - num_taken_ < channel_.shape.num_entries) return true;
  num_taken_ = channel_.num_taken->load(std::memory_order_acquire);
  return num_published_ - num_taken_ < channel_.shape.num_entries;
}

void Outbox::publish(Block block) {
  PENSTOCK_ASSERT(has_room(), "a message is published where there is room");
  const std::uint64_t index = num_published_ & (channel_.shape.num_entries - 1);
  ++num_published_;
  const std::uint64_t entry = (num_published_ << 32U) | block.number;
  channel_.entries[index].store(entry, std::memory_order_release);
}

}  // namespace penstock
