#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

// Numbers the nodes of a graph by address. An open hash table that is emptied in no time and keeps
// its memory: the graphs of all microbatches are about as large.
class NodeTable {
 public:
  struct Entry {
    std::uint32_t number = 0;
    bool is_new = false;
  };

  void clear();

  // The number of `node`; one that was not yet in the table gets `number`.
  Entry insert(const void* node, std::uint32_t number);

  // The number of `node`, which is in the table.
  std::uint32_t at(const void* node) const;

 private:
  struct Slot {
    const void* node = nullptr;
    std::uint32_t number = 0;
    std::uint32_t generation = 0;  // the slot is free unless it is the table's
  };

  std::size_t slot_of(const void* node) const;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half of them taken
  std::size_t num_taken_ = 0;
  std::uint32_t generation_ = 1;
};

}  // namespace penstock
