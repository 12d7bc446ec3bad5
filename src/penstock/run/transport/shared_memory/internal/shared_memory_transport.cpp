#include "penstock/run/transport/shared_memory/internal/shared_memory_transport.h"

#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/run/transport/internal/message_text.h"

namespace penstock {

struct SharedMemoryTransport::Peer {
  Outbox outbox;
  Inbox inbox;
};

SharedMemoryTransport::SharedMemoryTransport(const SharedMemoryOptions& options)
    : options_(options),
      keys_(options.extent),
      shape_(channel_shape(options.extent, options.num_ranks)),
      segment_(options.num_ranks, shape_),
      peers_(static_cast<std::size_t>(options.num_ranks)) {}

SharedMemoryTransport::~SharedMemoryTransport() = default;

void SharedMemoryTransport::connect(int peer, const std::string& invitation) {
  peers_[static_cast<std::size_t>(peer)] = std::make_unique<Peer>(
      Peer{.outbox = Outbox(segment_, peer),
           .inbox = Inbox(invitation, peer, options_.rank, shape_, keys_, options_.fingerprint)});
}

SharedMemoryTransport::Peer& SharedMemoryTransport::peer(int rank) const {
  const auto& peer = peers_[static_cast<std::size_t>(rank)];
  PENSTOCK_ASSERT(peer != nullptr, "messages go to ranks that are connected");
  return *peer;
}

bool SharedMemoryTransport::is_stopped() const {
  return segment_.control().is_stopped.load(std::memory_order_relaxed) != 0;
}

// False if the deadline has passed. `key` is what the wait is about, for the case that `rank` dies.
template <typename Condition>
bool SharedMemoryTransport::wait_for(int rank, MessageKey key, const Condition& is_ready) {
  const Inbox& inbox = peer(rank).inbox;
  const bool came = segment_.control().doorbell.wait(
      [&] { return is_stopped() || is_ready(); }, options_.wait,
      [&] {
        // What it did last counts.
        if (!inbox.sender_has_exited() || is_ready()) return;
        throw TransportError(
            fmt::format("rank {} has exited, and with it the way for {}", rank, describe(key)));
      });
  if (is_stopped()) throw StoppedError();
  return came;
}

void SharedMemoryTransport::begin_step(std::int64_t number) {
  if (is_stopped()) throw StoppedError();
  step_ = number;
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->inbox.require_nothing_before(number);
  }
}

Outbox::Block SharedMemoryTransport::block_for(int to_rank, MessageKey key, std::size_t size) {
  Outbox& outbox = peer(to_rank).outbox;
  std::optional<Outbox::Block> block;
  const bool came = wait_for(to_rank, key, [&] {
    if (!outbox.has_room()) return false;
    if (!block) block = outbox.find_block(size);
    return block.has_value();
  });
  if (!came) {
    throw TransportError(fmt::format(
        "waited {:.3g} s for rank {} to take earlier messages, before {}",
        std::chrono::duration<double>(options_.wait.deadline).count(), to_rank, describe(key)));
  }
  return *block;
}

void SharedMemoryTransport::send(int to_rank, MessageKey key, Message& message) {
  const WireLayout layout = lay_out(message);
  const Outbox::Block block = block_for(to_rank, key, layout.size);
  write_message({.fingerprint = options_.fingerprint, .step = step_, .key = key}, message, layout,
                block.data);
  peer(to_rank).outbox.publish(block);
  peer(to_rank).inbox.sender().doorbell.ring();
  message.clear();
}

void SharedMemoryTransport::receive(int from_rank, MessageKey key, Message& message) {
  Inbox& inbox = peer(from_rank).inbox;
  if (!wait_for(from_rank, key, [&] { return inbox.has(key); })) {
    throw_late(options_.wait.deadline, key, from_rank);
  }
  inbox.take({.fingerprint = options_.fingerprint, .step = step_, .key = key}, message);
}

void SharedMemoryTransport::stop() noexcept {
  const auto stop = [](RankControl& control) {
    control.is_stopped.store(1);
    control.doorbell.ring();
  };
  stop(segment_.control());
  for (const auto& peer : peers_) {
    if (peer != nullptr) stop(peer->inbox.sender());
  }
}

}  // namespace penstock
