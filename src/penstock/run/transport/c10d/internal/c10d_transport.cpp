#include "penstock/run/transport/c10d/internal/c10d_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/libtorch/sigpipe_block.h"
#include "penstock/run/transport/c10d/internal/backend_wait.h"
#include "penstock/run/transport/c10d/internal/receive_buffer.h"
#include "penstock/run/transport/internal/key_index.h"
#include "penstock/run/transport/internal/message_text.h"
#include "penstock/run/transport/internal/size_class.h"
#include "penstock/run/transport/internal/wire.h"

namespace penstock {
namespace {

// The first message with a key has this much room in its first part; a header fits in any case.
constexpr std::size_t kFirstRoom = 4096;

enum class Part { First, Rest };

// Backends tell messages apart by a number of 31 bits.
constexpr unsigned kStageBits = 11;
constexpr unsigned kMicrobatchBits = 18;

int tag_of(MessageKey key, Part part) {
  auto tag = static_cast<unsigned>(key.stage);
  tag = tag << kMicrobatchBits | static_cast<unsigned>(key.microbatch);
  tag = tag << 1U | (key.direction == Direction::Backward ? 1U : 0U);
  tag = tag << 1U | (part == Part::Rest ? 1U : 0U);
  return static_cast<int>(tag);
}

at::Tensor make_bytes(std::size_t size) {
  return at::empty({static_cast<std::int64_t>(size)}, at::kByte);
}

class C10dTransport final : public Transport {
 public:
  C10dTransport(BackendPtr backend, const C10dTransportOptions& options)
      : backend_(std::move(backend)),
        style_(wait_style_of(backend_)),
        options_(options),
        keys_(options.extent),
        outgoing_(keys_.size()),
        incoming_(keys_.size()),
        waits_(options.deadline, style_) {}
  C10dTransport(const C10dTransport&) = delete;
  C10dTransport& operator=(const C10dTransport&) = delete;
  C10dTransport(C10dTransport&&) = delete;
  C10dTransport& operator=(C10dTransport&&) = delete;

  // What was sent must arrive: an operation that ends before its message was taken is cancelled.
  // Nobody watches over a wait here, so it ends sooner than others.
  ~C10dTransport() override {
    try {
      waits_.finish_within(options_.last_wait);
      for (Outgoing& outgoing : outgoing_) finish(outgoing);
    } catch (...) {
      return;  // nobody is left to take it
    }
  }

  void begin_step(std::int64_t number) override {
    if (waits_.is_stopped()) throw StoppedError();
    step_ = number;
    may_raise_sigpipe_ = !is_sigpipe_ignored();  // asked once a step, for it is a system call
  }

  void send(int to_rank, MessageKey key, Message& message) override {
    Outgoing& outgoing = outgoing_[keys_(key)];
    finish(outgoing);
    outgoing.to_rank = to_rank;
    outgoing.key = key;
    const std::size_t size = wire_size(message);
    outgoing.make_room(size);
    write_message(label_of(key), message, size, outgoing.data());
    message.clear();
    const std::size_t first = std::min(size, outgoing.room);
    post(outgoing, Part::First, 0, first);
    if (first < size) post(outgoing, Part::Rest, first, size);
    outgoing.room = std::max(outgoing.room, size);
  }

  void expect(int from_rank, MessageKey key) override {
    Incoming& incoming = incoming_[keys_(key)];
    if (incoming.buffer != nullptr) return;
    ReceiveBuffer& buffer = incoming.take_buffer(pool_, incoming.room);
    try {
      incoming.operation = with_peer(from_rank, key, [&] {
        return BackendOperation(
            post_receive(backend_, buffer.as_tensors(), end_of(from_rank, key, Part::First)),
            style_);
      });
    } catch (const TransportError&) {
      incoming.drop();
      throw;
    }
  }

  void receive(int from_rank, MessageKey key, Message& message) override {
    expect(from_rank, key);
    Incoming& incoming = incoming_[keys_(key)];
    if (incoming.operation.is_pending()) await(incoming, from_rank, key);
    const WireHeader header = read_header(incoming.buffer->data(), options_.fingerprint, from_rank);
    require_label(header, label_of(key), from_rank);
    if (header.size > incoming.room) take_rest(incoming, header.size, from_rank, key);
    ReceiveBuffer& buffer = *incoming.buffer;
    const MemoryHold hold(buffer);
    incoming.drop();
    read_message(buffer.data(), buffer, message);
  }

  void stop() noexcept override { waits_.stop(); }

 private:
  // A message on its way out. Its memory is used again in the next step.
  struct Outgoing {
    struct Piece {
      Piece() = default;
      Piece(const Piece&) = delete;
      Piece& operator=(const Piece&) = delete;
      Piece(Piece&&) noexcept = default;
      Piece& operator=(Piece&&) noexcept = default;
      ~Piece() {
        if (operation.outlives_this()) operation.leave_behind(bytes);
      }

      BackendOperation operation;
      std::vector<at::Tensor> bytes;  // of the buffer; one tensor, kept while sizes stay the same
    };

    std::byte* data() const { return static_cast<std::byte*>(buffer.data_ptr()); }
    void make_room(std::size_t size) {
      if (buffer.defined() && buffer.nbytes() >= size) return;
      buffer = make_bytes(size_class_of(size).bytes);
      for (Piece& piece : pieces) piece.bytes.clear();
    }

    int to_rank = 0;
    MessageKey key;
    at::Tensor buffer;
    std::size_t room = kFirstRoom;  // of the first part, which the receiver computes as well
    std::array<Piece, 2> pieces;    // by Part
  };

  struct Incoming {
    Incoming() = default;
    Incoming(const Incoming&) = delete;
    Incoming& operator=(const Incoming&) = delete;
    Incoming(Incoming&& other) noexcept
        : room(other.room),
          buffer(std::exchange(other.buffer, nullptr)),
          operation(std::move(other.operation)) {}
    Incoming& operator=(Incoming&&) = delete;
    ~Incoming() { drop(); }

    ReceiveBuffer& take_buffer(ReceiveBufferPool& pool, std::size_t size) {
      buffer = &pool.take(size);
      buffer->hold();
      return *buffer;
    }
    void drop() {
      if (operation.outlives_this()) {
        operation.leave_behind(buffer->as_tensors());
        buffer = nullptr;  // is never used again
      }
      operation = {};  // before its memory
      if (buffer != nullptr) std::exchange(buffer, nullptr)->release();
    }

    std::size_t room = kFirstRoom;
    ReceiveBuffer* buffer = nullptr;  // held, from expect() to receive()
    BackendOperation operation;
  };

  WireLabel label_of(MessageKey key) const {
    return {.fingerprint = options_.fingerprint, .step = step_, .key = key};
  }

  MessageEnd end_of(int rank, MessageKey key, Part part) const {
    return {.rank = rank, .tag = tag_of(key, part), .may_raise_sigpipe = may_raise_sigpipe_};
  }

  // What libtorch throws is about a connection that broke.
  template <typename Call>
  std::invoke_result_t<Call> with_peer(int rank, MessageKey key, const Call& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      throw_lost(rank, key, cause_of(error));
    }
  }

  [[noreturn]] static void throw_lost(int rank, MessageKey key, const std::string& cause) {
    throw TransportError(
        fmt::format("lost the connection to rank {}, and with it the way for {}: {}", rank,
                    describe(key), cause));
  }

  void post(Outgoing& outgoing, Part part, std::size_t begin, std::size_t end) {
    auto& piece = outgoing.pieces[static_cast<std::size_t>(part)];
    if (piece.bytes.empty() || piece.bytes.front().nbytes() != end - begin ||
        piece.bytes.front().data_ptr() != outgoing.data() + begin) {
      piece.bytes = {outgoing.buffer.slice(0, static_cast<std::int64_t>(begin),
                                           static_cast<std::int64_t>(end))};
    }
    piece.operation = with_peer(outgoing.to_rank, outgoing.key, [&] {
      return BackendOperation(
          post_send(backend_, piece.bytes, end_of(outgoing.to_rank, outgoing.key, part)), style_);
    });
  }

  // Waits until the receiver has taken the last message with this key.
  void finish(Outgoing& outgoing) {
    for (auto& piece : outgoing.pieces) {
      if (!piece.operation.is_pending()) continue;
      const auto result =
          with_peer(outgoing.to_rank, outgoing.key, [&] { return waits_.wait(piece.operation); });
      if (result == BackendWaits::Result::Stopped) throw StoppedError();
      if (result == BackendWaits::Result::Late) {
        throw TransportError(fmt::format("waited {:.3g} s for rank {} to take {}",
                                         std::chrono::duration<double>(options_.deadline).count(),
                                         outgoing.to_rank, describe(outgoing.key)));
      }
    }
  }

  void await(Incoming& incoming, int from_rank, MessageKey key) {
    try {
      const auto result =
          with_peer(from_rank, key, [&] { return waits_.wait(incoming.operation); });
      if (result == BackendWaits::Result::Done) return;
      if (result == BackendWaits::Result::Stopped) throw StoppedError();
    } catch (const TransportError&) {
      incoming.drop();
      throw;
    }
    throw_late(options_.deadline, key, from_rank);  // it may still come
  }

  // The first part is there; gets the rest, and remembers the size for the next step.
  void take_rest(Incoming& incoming, std::size_t size, int from_rank, MessageKey key) {
    ReceiveBuffer& first = *incoming.buffer;
    ReceiveBuffer& whole = incoming.take_buffer(pool_, size);
    std::memcpy(whole.data(), first.data(), incoming.room);
    first.release();
    std::vector<at::Tensor> rest = {whole.as_tensors().front().slice(
        0, static_cast<std::int64_t>(incoming.room), static_cast<std::int64_t>(size))};
    incoming.room = size;
    incoming.operation = with_peer(from_rank, key, [&] {
      return BackendOperation(post_receive(backend_, rest, end_of(from_rank, key, Part::Rest)),
                              style_);
    });
    await(incoming, from_rank, key);
  }

  BackendPtr backend_;
  WaitStyle style_;
  C10dTransportOptions options_;
  KeyIndex keys_;
  std::int64_t step_ = 0;
  bool may_raise_sigpipe_ = true;
  ReceiveBufferPool pool_;
  std::vector<Outgoing> outgoing_;  // by key
  std::vector<Incoming> incoming_;  // by key
  BackendWaits waits_;
};

}  // namespace

std::unique_ptr<Transport> make_transport_over(const std::function<BackendPtr()>& connect,
                                               const C10dTransportOptions& options) {
  if (options.extent.num_stages > 1 << kStageBits ||
      options.extent.num_microbatches > 1 << kMicrobatchBits) {
    throw TransportError(fmt::format(
        "over c10d a program has at most {} stages and {} microbatches, but this one has {} and {}",
        1 << kStageBits, 1 << kMicrobatchBits, options.extent.num_stages,
        options.extent.num_microbatches));
  }
  try {
    return std::make_unique<C10dTransport>(connect(), options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw TransportError(fmt::format("rank {} cannot connect to all others from {}: {}",
                                     options.rank, options.address, cause_of(error)));
  }
}

std::unique_ptr<Transport> make_backend_transport(Store& store, const C10dTransportOptions& options,
                                                  const MakeBackend& make) {
  const StorePtr own =
      c10::make_intrusive<c10d::PrefixStore>(options.name, StorePtr::reclaim_copy(&store.native()));
  return make_transport_over(
      [&] {
        BackendPtr backend =
            connect_backend([make, own, rank = options.rank,
                             size = options.num_ranks] { return make(own, rank, size); },
                            {.timeout = options.connect_timeout, .look = options.look});
        if (!backend.defined()) {
          throw TransportError("no backend was made: the function that makes it returned nothing");
        }
        return backend;
      },
      options);
}

}  // namespace penstock
