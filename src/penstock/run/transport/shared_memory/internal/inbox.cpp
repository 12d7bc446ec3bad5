#include "penstock/run/transport/shared_memory/internal/inbox.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/run/transport/internal/message_text.h"
#include "penstock/run/transport/transport.h"

namespace penstock {

// What is mapped of the sender's segment, kept by the inbox and by every block that is handed out.
struct Inbox::Memory {
  Memory(const std::string& invitation, int own_rank, const ChannelShape& shape)
      : segment(invitation, own_rank, shape), channel(segment.channel()) {}

  PeerSegment segment;
  Channel channel;
  std::vector<std::unique_ptr<Block>> blocks;
  std::atomic<std::size_t> num_held = 0;
};

class Inbox::Block final : public ReceivedMemory {
 public:
  explicit Block(std::uint32_t number) : number_(number) {}

  void hand_out(std::shared_ptr<Memory> memory) {
    memory->num_held.fetch_add(1, std::memory_order_relaxed);
    memory_ = std::move(memory);
  }

 private:
  void reuse() noexcept override {
    // From the moment the flag is cleared, the block may be handed out again.
    const std::shared_ptr<Memory> memory = std::move(memory_);
    memory->num_held.fetch_sub(1, std::memory_order_relaxed);
    memory->channel.is_block_busy[number_].store(0, std::memory_order_release);
    memory->segment.control().doorbell.ring();
  }

  std::uint32_t number_;
  std::shared_ptr<Memory> memory_;
};

Inbox::Inbox(const std::string& invitation, int from_rank, int own_rank, const ChannelShape& shape,
             const KeyIndex& keys, std::uint64_t fingerprint)
    : from_rank_(from_rank),
      keys_(keys),
      fingerprint_(fingerprint),
      memory_(std::make_shared<Memory>(invitation, own_rank, shape)),
      mail_(keys.size()) {}

RankControl& Inbox::sender() const {
  return memory_->segment.control();
}

bool Inbox::sender_has_exited() const {
  return memory_->segment.has_exited();
}

std::byte* Inbox::data_of(std::uint32_t block) const {
  const Channel& channel = memory_->channel;
  return channel.heap + channel.block_offsets[block].load(std::memory_order_relaxed);
}

bool Inbox::has(MessageKey key) {
  const Mail& mail = mail_[keys_(key)];
  if (mail.is_there) return true;
  take_from_ring();
  return mail.is_there;
}

void Inbox::take_from_ring() {
  const Channel& channel = memory_->channel;
  for (;;) {
    const std::uint64_t index = num_taken_ & (channel.shape.num_entries - 1);
    const std::uint64_t entry = channel.entries[index].load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(entry >> 32U) != static_cast<std::uint32_t>(num_taken_ + 1)) {
      return;
    }
    const auto block = static_cast<std::uint32_t>(entry);
    const WireHeader header = read_header(data_of(block), fingerprint_, from_rank_);
    if (!keys_.contains(header.label.key)) {
      throw TransportError(fmt::format("rank {} sent {}, which is not in the program", from_rank_,
                                       describe(header.label.key)));
    }
    Mail& mail = mail_[keys_(header.label.key)];
    if (mail.is_there) return;  // of a sender that is a step ahead: it waits in the ring
    mail = {.block = block, .is_there = true};
    ++num_waiting_;
    channel.num_taken->store(++num_taken_, std::memory_order_release);
    sender().doorbell.ring();
  }
}

void Inbox::take(const WireLabel& label, Message& message) {
  Mail& mail = mail_[keys_(label.key)];
  std::byte* data = data_of(mail.block);
  require_label(read_header(data, fingerprint_, from_rank_), label, from_rank_);
  mail.is_there = false;
  --num_waiting_;

  std::vector<std::unique_ptr<Block>>& blocks = memory_->blocks;
  while (blocks.size() <= mail.block) {
    blocks.push_back(std::make_unique<Block>(static_cast<std::uint32_t>(blocks.size())));
  }
  Block& block = *blocks[mail.block];
  block.hand_out(memory_);
  const MemoryHold hold(block);
  read_message(data, block, message);
  // Whoever keeps messages for good must not take the blocks away from those to come.
  if (memory_->num_held.load(std::memory_order_relaxed) <= memory_->channel.shape.num_blocks / 2) {
    return;
  }
  for (c10::IValue& value : message) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const bool requires_grad = value.toTensor().requires_grad();
    value = value.toTensor().detach().clone().requires_grad_(requires_grad);
  }
}

void Inbox::require_nothing_before(std::int64_t step) {
  if (num_waiting_ == 0) return;
  for (const Mail& mail : mail_) {
    if (!mail.is_there) continue;
    const WireHeader header = read_header(data_of(mail.block), fingerprint_, from_rank_);
    if (header.label.step >= step) continue;
    throw TransportError(
        fmt::format("rank {} sent {} in step {}, which this rank did not ask for; all ranks must "
                    "run the same program",
                    from_rank_, describe(header.label.key), header.label.step));
  }
}

}  // namespace penstock
