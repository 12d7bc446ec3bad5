#include "penstock/run/transport/c10d/internal/receive_buffer.h"

#include <mutex>
#include <utility>

#include <ATen/Functions.h>

#include "penstock/run/transport/internal/size_class.h"

namespace penstock {

struct ReceiveBuffer::Shelf {
  std::mutex mutex;
  std::vector<std::vector<std::unique_ptr<ReceiveBuffer>>> free;  // by size class
};

ReceiveBuffer::ReceiveBuffer(std::size_t size)
    : tensors_({at::empty({static_cast<std::int64_t>(size)}, at::kByte)}) {}

std::byte* ReceiveBuffer::data() const {
  return static_cast<std::byte*>(tensors_.front().data_ptr());
}

std::size_t ReceiveBuffer::size() const {
  return tensors_.front().nbytes();
}

void ReceiveBuffer::reuse() noexcept {
  const std::shared_ptr<Shelf> shelf = std::move(shelf_);  // with it may go this buffer
  const std::size_t size_class = size_class_of(size()).number;
  const std::lock_guard lock(shelf->mutex);
  shelf->free[size_class].emplace_back(this);
}

ReceiveBufferPool::ReceiveBufferPool() : shelf_(std::make_shared<ReceiveBuffer::Shelf>()) {}

ReceiveBuffer& ReceiveBufferPool::take(std::size_t size) {
  const SizeClass size_class = size_class_of(size);
  std::unique_ptr<ReceiveBuffer> buffer;
  {
    const std::lock_guard lock(shelf_->mutex);
    auto& free = shelf_->free;
    if (free.size() <= size_class.number) free.resize(size_class.number + 1);
    if (auto& fitting = free[size_class.number]; !fitting.empty()) {
      buffer = std::move(fitting.back());
      fitting.pop_back();
    }
  }
  if (buffer == nullptr) buffer.reset(new ReceiveBuffer(size_class.bytes));
  buffer->shelf_ = shelf_;
  return *buffer.release();  // goes back to the shelf by itself
}

}  // namespace penstock
