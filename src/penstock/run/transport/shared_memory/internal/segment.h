#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/transport/shared_memory/internal/futex_doorbell.h"

// The memory that ranks of one host share. Each rank makes one segment, writes what it sends into
// it, and lets the others map their part of it:
//
//   | control | channel to rank 0 | channel to rank 1 | ...
//
// A channel is a ring of messages, in the order of sending, and the blocks of memory that they lie
// in. The sender owns the blocks; the receiver gives each back when nothing refers to it any more.
// A segment has no name and is gone with the processes that map it, however they end.
namespace penstock {

constexpr std::size_t kPageSize = 4096;

// At the start of a segment.
struct RankControl {
  std::uint64_t nonce;  // known to members of the group only
  std::atomic<std::uint32_t> is_stopped;
  FutexDoorbell doorbell;  // of the rank whose segment this is
};
static_assert(sizeof(RankControl) <= kPageSize);

struct ChannelShape {
  std::size_t num_entries = 0;  // of the ring; a power of two
  std::size_t num_blocks = 0;   // at most
  std::size_t heap_size = 0;    // bytes for blocks: addresses, not memory, until they are used

  std::size_t entries_offset() const;
  std::size_t flags_offset() const;
  std::size_t offsets_offset() const;
  std::size_t heap_offset() const;
  std::size_t size() const { return heap_offset() + heap_size; }
};

// Room for the messages of two steps in the ring, so that a sender waits only for a receiver that
// is a whole step behind: that cannot end in a circle.
ChannelShape channel_shape(Extent extent, int num_ranks);

// One channel, as it is mapped here.
struct Channel {
  Channel(std::byte* begin, const ChannelShape& shape);

  ChannelShape shape;
  std::atomic<std::uint64_t>* num_taken;     // messages that the receiver has read from the ring
  std::atomic<std::uint64_t>* entries;       // number of the message (32 bits), block (32 bits)
  std::atomic<std::uint8_t>* is_block_busy;  // set by the sender, cleared by the receiver
  std::atomic<std::uint64_t>* block_offsets;
  std::byte* heap;
};

// Closes a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  int number() const { return number_; }

 private:
  int number_;
};

// Part of a file in memory. Throws TransportError if it cannot be mapped.
class Mapping {
 public:
  Mapping(int descriptor, std::size_t offset, std::size_t size);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&&) = delete;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t size_;
};

// The segment that this rank makes.
class OwnSegment {
 public:
  OwnSegment(int num_ranks, const ChannelShape& shape);

  RankControl& control() const;
  Channel channel_to(int rank) const;

  // How the others find it, as text.
  std::string invitation() const;

  // Makes sure that there is memory behind a part of the channel's heap. Throws TransportError if
  // the machine has no more.
  void reserve(int rank, std::size_t heap_offset, std::size_t size) const;

 private:
  ChannelShape shape_;
  std::size_t size_;
  Descriptor file_;
  Mapping mapping_;
};

// The part of another rank's segment that concerns this rank: its control and the channel from it.
// Throws TransportError if it cannot be reached, which is so between containers, for example.
class PeerSegment {
 public:
  PeerSegment(const std::string& invitation, int own_rank, const ChannelShape& shape);

  RankControl& control() const;
  Channel channel() const;
  bool has_exited() const;  // the process of the peer

 private:
  struct Invitation;
  PeerSegment(const Invitation& invitation, int own_rank, const ChannelShape& shape);
  PeerSegment(const Invitation& invitation, const Descriptor& file, int own_rank,
              const ChannelShape& shape);

  ChannelShape shape_;
  Mapping control_;
  Mapping channel_;
  Descriptor process_;
};

}  // namespace penstock
