#include "penstock/run/autograd/internal/node_table.h"

#include <bit>
#include <utility>

#include "penstock/base/assert.h"

namespace penstock {

void NodeTable::clear() {
  num_taken_ = 0;
  ++generation_;
  if (generation_ == 0) {
    slots_.assign(slots_.size(), {});
    generation_ = 1;
  }
}

NodeTable::Entry NodeTable::insert(const void* node, std::uint32_t number) {
  if (2 * num_taken_ >= slots_.size()) grow();
  Slot& slot = slots_[slot_of(node)];
  if (slot.generation == generation_) return {.number = slot.number, .is_new = false};
  slot = {.node = node, .number = number, .generation = generation_};
  ++num_taken_;
  return {.number = number, .is_new = true};
}

std::uint32_t NodeTable::at(const void* node) const {
  const Slot& slot = slots_[slot_of(node)];
  PENSTOCK_ASSERT(slot.generation == generation_, "the node was walked");
  return slot.number;
}

// The slot that holds `node`, or else the one that would take it.
std::size_t NodeTable::slot_of(const void* node) const {
  // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
  const std::uint64_t product = std::bit_cast<std::uintptr_t>(node) * 0x9E3779B97F4A7C15U;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = product >> (64 - std::bit_width(mask));
  while (slots_[slot].generation == generation_ && slots_[slot].node != node) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void NodeTable::grow() {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : old) {
    if (slot.generation == generation_) slots_[slot_of(slot.node)] = slot;
  }
}

}  // namespace penstock
