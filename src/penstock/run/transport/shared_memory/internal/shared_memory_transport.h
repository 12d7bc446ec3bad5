#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/threads/wait_policy.h"
#include "penstock/run/transport/internal/key_index.h"
#include "penstock/run/transport/internal/wire.h"
#include "penstock/run/transport/shared_memory/internal/inbox.h"
#include "penstock/run/transport/shared_memory/internal/outbox.h"
#include "penstock/run/transport/shared_memory/internal/segment.h"
#include "penstock/run/transport/transport.h"

namespace penstock {

struct SharedMemoryOptions {
  int rank = 0;
  int num_ranks = 1;
  Extent extent = {};
  std::uint64_t fingerprint = 0;
  WaitPolicy wait = {};
};

// Connects ranks that are processes of one host. A message is copied once, into memory of the
// sender, and its tensors lie there until they are gone. No system calls unless somebody is parked.
class SharedMemoryTransport final : public Transport {
 public:
  // Throws TransportError if there is no shared memory to be had.
  explicit SharedMemoryTransport(const SharedMemoryOptions& options);
  SharedMemoryTransport(const SharedMemoryTransport&) = delete;
  SharedMemoryTransport& operator=(const SharedMemoryTransport&) = delete;
  SharedMemoryTransport(SharedMemoryTransport&&) = delete;
  SharedMemoryTransport& operator=(SharedMemoryTransport&&) = delete;
  ~SharedMemoryTransport() override;

  // What the other ranks need to reach this one.
  std::string invitation() const { return segment_.invitation(); }

  // Connects with the rank that has made `invitation`. Throws TransportError if that is not
  // possible.
  void connect(int peer, const std::string& invitation);

  void begin_step(std::int64_t number) override;
  void send(int to_rank, MessageKey key, Message& message) override;
  void expect(int /*from_rank*/, MessageKey /*key*/) override {}  // whatever comes is kept
  void receive(int from_rank, MessageKey key, Message& message) override;
  void stop() noexcept override;

 private:
  struct Peer;

  Peer& peer(int rank) const;
  template <typename Condition>
  bool wait_for(int rank, MessageKey key, const Condition& is_ready);
  Outbox::Block block_for(int to_rank, MessageKey key, std::size_t size);
  bool is_stopped() const;

  SharedMemoryOptions options_;
  KeyIndex keys_;
  ChannelShape shape_;
  OwnSegment segment_;
  std::int64_t step_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null for this one
};

}  // namespace penstock
