#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/run/transport/internal/received_memory.h"

namespace penstock {

class ReceiveBufferPool;

// Memory for one message, as a tensor of bytes.
class ReceiveBuffer final : public ReceivedMemory {
 public:
  std::byte* data() const;
  std::size_t size() const;
  std::vector<at::Tensor>& as_tensors() { return tensors_; }  // one, of all bytes

 private:
  friend class ReceiveBufferPool;
  struct Shelf;

  explicit ReceiveBuffer(std::size_t size);
  void reuse() noexcept override;

  std::vector<at::Tensor> tensors_;
  std::shared_ptr<Shelf> shelf_;  // to go back to
};

// Hands out buffers, and takes each back when nobody holds it any more. A buffer may outlive the
// pool. Safe from several threads.
class ReceiveBufferPool {
 public:
  ReceiveBufferPool();

  // A buffer of at least `size` bytes, which the caller must hold.
  ReceiveBuffer& take(std::size_t size);

 private:
  std::shared_ptr<ReceiveBuffer::Shelf> shelf_;
};

}  // namespace penstock
