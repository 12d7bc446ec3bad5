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
#include "penstock/run/transport/c10d/internal/message_parts.h"
#include "penstock/run/transport/c10d/internal/receive_buffer.h"
#include "penstock/run/transport/internal/key_index.h"
#include "penstock/run/transport/internal/message_text.h"
#include "penstock/run/transport/internal/size_class.h"
#include "penstock/run/transport/internal/wire.h"

namespace penstock {
namespace {

// From here on a tensor is not copied sooner than a message of its own is sent.
constexpr std::size_t kLeastTail = std::size_t{384} << 10U;

at::Tensor make_bytes(std::size_t size) {
  return at::empty({static_cast<std::int64_t>(size)}, at::kByte);
}

at::Tensor slice(const at::Tensor& bytes, std::size_t begin, std::size_t end) {
  return bytes.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
}

// Its memory as bytes, which keep it.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<std::int64_t>(tensor.nbytes())},
      [tensor](void* /*memory*/) {}, at::kByte);
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
    const WireLayout layout = lay_out(message, kLeastTail);
    const Rooms rooms =
        std::exchange(outgoing.rooms, outgoing.rooms.after(layout.size, layout.tail));
    if (rooms.fit(layout)) {
      outgoing.make_room(layout.tail);
      write_message(label_of(key), message, layout, outgoing.data(), Tail::LeftOut);
      post(outgoing, Part::Head, 0, layout.tail);
      post(outgoing, Part::Tail, bytes_of(message[layout.tail_value].toTensor()));
    } else {
      outgoing.make_room(layout.size);
      write_message(label_of(key), message, layout, outgoing.data());
      const std::size_t head = std::min(layout.size, rooms.head);
      const std::size_t total = std::min(layout.size, rooms.total());
      post(outgoing, Part::Head, 0, head);
      // One is waited for: a byte, if nothing is left for it.
      if (rooms.tail > 0) post(outgoing, Part::Tail, std::min(head, total - 1), total);
      if (total < layout.size) post(outgoing, Part::Rest, total, layout.size);
    }
    message.clear();
  }

  void expect(int from_rank, MessageKey key) override {
    Incoming& incoming = incoming_[keys_(key)];
    if (incoming.buffer != nullptr) return;
    const Rooms rooms = incoming.rooms;
    ReceiveBuffer& buffer = incoming.take_buffer(pool_, rooms.total());
    try {
      if (rooms.tail == 0) {
        post(incoming.head, buffer.as_tensors(), end_of(from_rank, key, Part::Head), key);
        return;
      }
      const at::Tensor& bytes = buffer.as_tensors().front();
      std::vector<at::Tensor> head = {slice(bytes, 0, rooms.head)};
      std::vector<at::Tensor> tail = {slice(bytes, rooms.head, rooms.total())};
      post(incoming.head, head, end_of(from_rank, key, Part::Head), key);
      post(incoming.tail, tail, end_of(from_rank, key, Part::Tail), key);
    } catch (const TransportError&) {
      incoming.drop();
      throw;
    }
  }

  void receive(int from_rank, MessageKey key, Message& message) override {
    expect(from_rank, key);
    Incoming& incoming = incoming_[keys_(key)];
    await(incoming, incoming.head, from_rank, key);
    const WireHeader header = read_header(incoming.buffer->data(), options_.fingerprint, from_rank);
    require_label(header, label_of(key), from_rank);
    await(incoming, incoming.tail, from_rank, key);
    if (header.size > incoming.rooms.total()) take_rest(incoming, header.size, from_rank, key);
    ReceiveBuffer& buffer = *incoming.buffer;
    const MemoryHold hold(buffer);
    incoming.drop();
    incoming.rooms = incoming.rooms.after(header.size, header.tail);
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
    Piece& piece(Part part) { return pieces[static_cast<std::size_t>(part)]; }
    void make_room(std::size_t size) {
      const std::size_t bytes = size_class_of(size).bytes;
      const bool is_wasted = buffer.defined() && buffer.nbytes() > bytes + kLeastTail;
      if (buffer.defined() && buffer.nbytes() >= size && !is_wasted) return;
      buffer = make_bytes(bytes);
      for (Piece& piece : pieces) piece.bytes.clear();
    }

    int to_rank = 0;
    MessageKey key;
    at::Tensor buffer;  // of what is not sent from where it is
    Rooms rooms;
    std::array<Piece, 3> pieces;  // by Part
  };

  struct Incoming {
    Incoming() = default;
    Incoming(const Incoming&) = delete;
    Incoming& operator=(const Incoming&) = delete;
    Incoming(Incoming&& other) noexcept
        : rooms(other.rooms),
          buffer(std::exchange(other.buffer, nullptr)),
          head(std::move(other.head)),
          tail(std::move(other.tail)) {}
    Incoming& operator=(Incoming&&) = delete;
    ~Incoming() { drop(); }

    ReceiveBuffer& take_buffer(ReceiveBufferPool& pool, std::size_t size) {
      buffer = &pool.take(size);
      buffer->hold();
      return *buffer;
    }
    void drop() {
      bool is_left_behind = false;
      for (BackendOperation* const operation : {&head, &tail}) {
        if (operation->outlives_this()) {
          operation->leave_behind(buffer->as_tensors());
          is_left_behind = true;  // is never used again
        }
        *operation = {};  // before its memory
      }
      ReceiveBuffer* const dropped = std::exchange(buffer, nullptr);
      if (dropped != nullptr && !is_left_behind) dropped->release();
    }

    Rooms rooms;
    ReceiveBuffer* buffer = nullptr;  // held, from expect() to receive()
    BackendOperation head;
    BackendOperation tail;  // and then of the rest
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
    auto& bytes = outgoing.piece(part).bytes;
    if (bytes.empty() || bytes.front().nbytes() != end - begin ||
        bytes.front().data_ptr() != outgoing.data() + begin) {
      bytes = {slice(outgoing.buffer, begin, end)};
    }
    post(outgoing, part);
  }

  void post(Outgoing& outgoing, Part part, at::Tensor bytes) {
    outgoing.piece(part).bytes = {std::move(bytes)};
    post(outgoing, part);
  }

  void post(Outgoing& outgoing, Part part) {
    auto& piece = outgoing.piece(part);
    piece.operation = with_peer(outgoing.to_rank, outgoing.key, [&] {
      return BackendOperation(
          post_send(backend_, piece.bytes, end_of(outgoing.to_rank, outgoing.key, part)), style_);
    });
  }

  void post(BackendOperation& operation, std::vector<at::Tensor>& bytes, const MessageEnd& from,
            MessageKey key) {
    operation = with_peer(from.rank, key, [&] {
      return BackendOperation(post_receive(backend_, bytes, from), style_);
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
    outgoing.piece(Part::Tail).bytes.clear();  // a tensor of a step that is over
  }

  void await(Incoming& incoming, BackendOperation& operation, int from_rank, MessageKey key) {
    if (!operation.is_pending()) return;
    try {
      const auto result = with_peer(from_rank, key, [&] { return waits_.wait(operation); });
      if (result == BackendWaits::Result::Done) return;
      if (result == BackendWaits::Result::Stopped) throw StoppedError();
    } catch (const TransportError&) {
      incoming.drop();
      throw;
    }
    throw_late(options_.deadline, key, from_rank);  // it may still come
  }

  // What there was room for is there; gets the rest.
  void take_rest(Incoming& incoming, std::size_t size, int from_rank, MessageKey key) {
    ReceiveBuffer& first = *incoming.buffer;
    const std::size_t begin = incoming.rooms.total();
    ReceiveBuffer& whole = incoming.take_buffer(pool_, size);
    std::memcpy(whole.data(), first.data(), begin);
    first.release();
    std::vector<at::Tensor> rest = {slice(whole.as_tensors().front(), begin, size)};
    incoming.rooms = {.head = size, .tail = 0};
    post(incoming.tail, rest, end_of(from_rank, key, Part::Rest), key);
    await(incoming, incoming.tail, from_rank, key);
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
