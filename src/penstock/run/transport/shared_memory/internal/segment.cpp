#include "penstock/run/transport/shared_memory/internal/segment.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "penstock/run/transport/transport.h"

namespace penstock {
namespace {

constexpr std::size_t kCacheLine = 64;

std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

[[noreturn]] void fail(const std::string& action) {
  throw TransportError(fmt::format("cannot {}: {}", action, std::strerror(errno)));
}

int make_file(std::size_t size) {
  const int file = memfd_create("penstock", MFD_CLOEXEC);
  if (file < 0) fail("make a segment of shared memory");
  if (ftruncate(file, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    close(file);
    errno = error;
    fail(fmt::format("make a segment of shared memory with {} bytes of addresses", size));
  }
  return file;
}

// One that no other process can guess.
std::uint64_t make_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

template <typename Type>
Type* at_offset(std::byte* begin, std::size_t offset) {
  return reinterpret_cast<Type*>(begin + offset);
}

}  // namespace

std::size_t ChannelShape::entries_offset() const {
  return kCacheLine;
}
std::size_t ChannelShape::flags_offset() const {
  return entries_offset() + num_entries * sizeof(std::uint64_t);
}
std::size_t ChannelShape::offsets_offset() const {
  return round_up(flags_offset() + num_blocks, kCacheLine);
}
std::size_t ChannelShape::heap_offset() const {
  return round_up(offsets_offset() + num_blocks * sizeof(std::uint64_t), kPageSize);
}

ChannelShape channel_shape(Extent extent, int num_ranks) {
  constexpr std::size_t kFewestEntries = 64;
  constexpr std::size_t kLargestHeap = std::size_t{1} << 38U;  // 256 GiB
  constexpr std::size_t kAllHeaps = std::size_t{1} << 43U;     // 8 TiB of 128 TiB addresses
  const std::size_t per_step = 2 * static_cast<std::size_t>(extent.num_stages) *
                               static_cast<std::size_t>(extent.num_microbatches);
  ChannelShape shape;
  shape.num_entries = std::bit_ceil(std::max(kFewestEntries, 2 * per_step));
  shape.num_blocks = 4 * shape.num_entries;
  shape.heap_size =
      std::min(kLargestHeap, kAllHeaps / std::bit_ceil(static_cast<unsigned>(num_ranks)));
  return shape;
}

Channel::Channel(std::byte* begin, const ChannelShape& given)
    : shape(given),
      num_taken(at_offset<std::atomic<std::uint64_t>>(begin, 0)),
      entries(at_offset<std::atomic<std::uint64_t>>(begin, given.entries_offset())),
      is_block_busy(at_offset<std::atomic<std::uint8_t>>(begin, given.flags_offset())),
      block_offsets(at_offset<std::atomic<std::uint64_t>>(begin, given.offsets_offset())),
      heap(begin + given.heap_offset()) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                std::atomic<std::uint8_t>::is_always_lock_free);
}

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Mapping::Mapping(int descriptor, std::size_t offset, std::size_t size) : size_(size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor,
                    static_cast<off_t>(offset));
  if (data == MAP_FAILED) fail(fmt::format("map {} bytes of shared memory", size));
  madvise(data, size, MADV_DONTDUMP);
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() {
  munmap(data_, size_);
}

OwnSegment::OwnSegment(int num_ranks, const ChannelShape& shape)
    : shape_(shape),
      size_(kPageSize + static_cast<std::size_t>(num_ranks) * shape.size()),
      file_(make_file(size_)),
      mapping_(file_.number(), 0, size_) {
  control().nonce = make_nonce();
}

RankControl& OwnSegment::control() const {
  return *at_offset<RankControl>(mapping_.data(), 0);
}

Channel OwnSegment::channel_to(int rank) const {
  return {mapping_.data() + kPageSize + static_cast<std::size_t>(rank) * shape_.size(), shape_};
}

std::string OwnSegment::invitation() const {
  return fmt::format("{} {} {}", getpid(), file_.number(), control().nonce);
}

void OwnSegment::reserve(int rank, std::size_t heap_offset, std::size_t size) const {
  const std::size_t offset = kPageSize + static_cast<std::size_t>(rank) * shape_.size() +
                             shape_.heap_offset() + heap_offset;
  while (fallocate(file_.number(), 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
    if (errno != EINTR) fail(fmt::format("get {} bytes of shared memory", size));
  }
}

struct PeerSegment::Invitation {
  explicit Invitation(const std::string& text) {
    // NOLINTNEXTLINE(cert-err34-c): the count of what was read is checked
    if (std::sscanf(text.c_str(), "%d %d %lu", &process, &file, &nonce) != 3) {
      throw TransportError(fmt::format("\"{}\" does not tell where a segment is", text));
    }
  }
  int process = 0;
  int file = 0;
  unsigned long nonce = 0;

  // Of a segment with at least `size` bytes: to read behind the end of a file ends the process.
  int open(std::size_t size) const {
    const std::string path = fmt::format("/proc/{}/fd/{}", process, file);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) fail(fmt::format("open {}, the memory of another rank", path));
    struct stat status = {};
    if (fstat(descriptor, &status) == 0 && static_cast<std::size_t>(status.st_size) >= size) {
      return descriptor;
    }
    close(descriptor);
    throw TransportError(
        fmt::format("{}, the memory of another rank, has {} bytes here, but {} are needed", path,
                    status.st_size, size));
  }
};

PeerSegment::PeerSegment(const std::string& invitation, int own_rank, const ChannelShape& shape)
    : PeerSegment(Invitation(invitation), own_rank, shape) {}

PeerSegment::PeerSegment(const Invitation& invitation, int own_rank, const ChannelShape& shape)
    : PeerSegment(invitation,
                  Descriptor(invitation.open(kPageSize + (static_cast<std::size_t>(own_rank) + 1) *
                                                             shape.size())),
                  own_rank, shape) {}

PeerSegment::PeerSegment(const Invitation& invitation, const Descriptor& file, int own_rank,
                         const ChannelShape& shape)
    : shape_(shape),
      control_(file.number(), 0, kPageSize),
      channel_(file.number(), kPageSize + static_cast<std::size_t>(own_rank) * shape.size(),
               shape.size()),
      process_(static_cast<int>(syscall(SYS_pidfd_open, invitation.process, 0))) {
  if (control().nonce != invitation.nonce) {
    throw TransportError("the file that the other rank speaks of is another one here");
  }
}

RankControl& PeerSegment::control() const {
  return *at_offset<RankControl>(control_.data(), 0);
}

Channel PeerSegment::channel() const {
  return {channel_.data(), shape_};
}

bool PeerSegment::has_exited() const {
  if (process_.number() < 0) return false;  // a kernel that cannot tell
  pollfd query{.fd = process_.number(), .events = POLLIN, .revents = 0};
  return poll(&query, 1, 0) > 0;
}

}  // namespace penstock
