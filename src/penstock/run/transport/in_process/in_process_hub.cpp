#include "penstock/run/transport/in_process/in_process_hub.h"

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "penstock/base/assert.h"
#include "penstock/run/transport/internal/message_text.h"

namespace penstock {

class InProcessHub::Endpoint final : public Transport {
 public:
  Endpoint(InProcessHub& hub, int rank) : hub_(hub), rank_(rank) {}

  void begin_step(std::int64_t /*number*/) override {}  // reset() is between steps
  void send(int to_rank, MessageKey key, Message& message) override {
    hub_.send(to_rank, key, message);
  }
  void expect(int /*from_rank*/, MessageKey /*key*/) override {}  // its place is always there
  void receive(int from_rank, MessageKey key, Message& message) override {
    hub_.receive(rank_, from_rank, key, message);
  }
  void stop() noexcept override { hub_.stop(); }

 private:
  InProcessHub& hub_;
  int rank_;
};

InProcessHub::InProcessHub(int num_ranks, Extent extent, WaitPolicy policy)
    : extent_(extent),
      policy_(policy),
      progress_(num_ranks),
      places_(2 * static_cast<std::size_t>(extent.num_stages) *
              static_cast<std::size_t>(extent.num_microbatches)),
      doorbells_(static_cast<std::size_t>(num_ranks)) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
  }
}

InProcessHub::~InProcessHub() = default;

Transport& InProcessHub::endpoint(int rank) {
  return *endpoints_[static_cast<std::size_t>(rank)];
}

InProcessHub::Place& InProcessHub::place_of(MessageKey key) {
  const auto num_microbatches = static_cast<std::size_t>(extent_.num_microbatches);
  const std::size_t cell = static_cast<std::size_t>(key.stage) * num_microbatches +
                           static_cast<std::size_t>(key.microbatch);
  return places_[2 * cell + (key.direction == Direction::Backward ? 1 : 0)];
}

void InProcessHub::send(int to_rank, MessageKey key, Message& message) {
  Place& place = place_of(key);
  PENSTOCK_ASSERT(!place.is_full.load(), "a message is sent once per step");
  place.message.swap(message);
  message.clear();
  place.is_full.store(true);
  doorbells_[static_cast<std::size_t>(to_rank)].ring();
}

// False if no rank has moved for the deadline.
template <typename Condition>
bool InProcessHub::wait(int rank, const Condition& is_ready) {
  using Clock = std::chrono::steady_clock;
  constexpr int kLooksPerDeadline = 8;
  if (is_ready()) return true;
  std::uint64_t num_moves = progress_.num_moves();
  Clock::time_point end = Clock::now() + policy_.deadline;
  WaitPolicy look{.spin = policy_.spin, .deadline = policy_.deadline / kLooksPerDeadline};
  for (;;) {
    if (doorbells_[static_cast<std::size_t>(rank)].wait(is_ready, look)) return true;
    look.spin = std::chrono::nanoseconds::zero();
    const Clock::time_point now = Clock::now();
    if (const std::uint64_t moves = progress_.num_moves(); moves != num_moves) {
      num_moves = moves;
      end = now + policy_.deadline;
    } else if (now >= end) {
      return false;
    }
  }
}

void InProcessHub::receive(int rank, int from_rank, MessageKey key, Message& message) {
  Place& place = place_of(key);
  const bool came = wait(rank, [&] { return place.is_full.load() || is_stopped_.load(); });
  if (is_stopped_.load()) throw StoppedError();
  if (!came) throw_late(policy_.deadline, key, from_rank);
  place.message.swap(message);
  place.is_full.store(false);
}

void InProcessHub::stop() noexcept {
  is_stopped_.store(true);
  for (Doorbell& doorbell : doorbells_) doorbell.ring();
}

void InProcessHub::begin_step(const Schedule& program) {
  for (int rank = 0; rank < program.num_ranks(); ++rank) progress_.set_finished(rank, 0);
}

std::exception_ptr InProcessHub::fail_step(std::exception_ptr failure) {
  reset();
  return failure;
}

void InProcessHub::reset() {
  is_stopped_.store(false);
  for (Place& place : places_) {
    place.is_full.store(false);
    place.message.clear();
  }
}

}  // namespace penstock
