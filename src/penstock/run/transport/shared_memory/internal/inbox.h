#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/run/transport/internal/key_index.h"
#include "penstock/run/transport/internal/received_memory.h"
#include "penstock/run/transport/internal/wire.h"
#include "penstock/run/transport/message.h"
#include "penstock/run/transport/shared_memory/internal/segment.h"

namespace penstock {

// The receiving end of a channel. Messages are taken from the ring in the order of sending and wait
// here until they are asked for. What is handed out may outlive the inbox.
class Inbox {
 public:
  Inbox(const std::string& invitation, int from_rank, int own_rank, const ChannelShape& shape,
        const KeyIndex& keys, std::uint64_t fingerprint);

  RankControl& sender() const;
  bool sender_has_exited() const;

  // Takes what has come, and says whether the message is there. Throws TransportError on messages
  // that are not of this program.
  bool has(MessageKey key);

  // The values of a message that is there. Throws TransportError unless it is of this step.
  void take(const WireLabel& label, Message& message);

  // Throws TransportError if a message of an earlier step is still here.
  void require_nothing_before(std::int64_t step);

 private:
  class Block;
  struct Memory;
  struct Mail {
    std::uint32_t block = 0;
    bool is_there = false;
  };

  void take_from_ring();
  std::byte* data_of(std::uint32_t block) const;

  int from_rank_;
  KeyIndex keys_;
  std::uint64_t fingerprint_;
  std::shared_ptr<Memory> memory_;
  std::uint64_t num_taken_ = 0;
  std::vector<Mail> mail_;  // by key
  std::size_t num_waiting_ = 0;
};

}  // namespace penstock
