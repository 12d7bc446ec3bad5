#pragma once

#include <atomic>

namespace penstock {

// Memory that a message was received in. The tensors of the message lie in it and hold it; it is
// used again when the last of them is gone, on whatever thread that happens.
class ReceivedMemory {
 public:
  ReceivedMemory() = default;
  ReceivedMemory(const ReceivedMemory&) = delete;
  ReceivedMemory& operator=(const ReceivedMemory&) = delete;
  ReceivedMemory(ReceivedMemory&&) = delete;
  ReceivedMemory& operator=(ReceivedMemory&&) = delete;
  virtual ~ReceivedMemory() = default;

  void hold() noexcept { num_holders_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (num_holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) reuse();
  }

 private:
  // Called without holders; may delete this.
  virtual void reuse() noexcept = 0;

  std::atomic<int> num_holders_ = 0;
};

// Holds memory for a scope.
class MemoryHold {
 public:
  explicit MemoryHold(ReceivedMemory& memory) : memory_(memory) { memory.hold(); }
  MemoryHold(const MemoryHold&) = delete;
  MemoryHold& operator=(const MemoryHold&) = delete;
  MemoryHold(MemoryHold&&) = delete;
  MemoryHold& operator=(MemoryHold&&) = delete;
  ~MemoryHold() { memory_.release(); }

 private:
  ReceivedMemory& memory_;
};

}  // namespace penstock
