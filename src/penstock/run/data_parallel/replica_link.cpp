#include "penstock/run/data_parallel/replica_link.h"

#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"

namespace penstock {
namespace {

// Of exchange().
constexpr int kTold = 0;
constexpr int kHeard = 1;

ReplicaPosition position_in(const RankGroup& group) {
  const std::vector<int> local = group.local_ranks();
  if (local.size() != 1) {
    throw ArgumentError(
        fmt::format("a pipeline is one of its replicas, but the data group says that it is {} of "
                    "them",
                    local.size()));
  }
  return {.index = local.front(), .count = group.num_ranks()};
}

// Says that the rank waits, for as long as it does, at the action that it waits for.
class Waiting {
 public:
  Waiting(ProgressBoard& progress, int replica, int wait_step, int step)
      : progress_(progress), replica_(replica), step_(step) {
    progress_.set_finished(replica_, wait_step);
    progress_.set_waiting(replica_, true);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  Waiting(Waiting&&) = delete;
  Waiting& operator=(Waiting&&) = delete;
  ~Waiting() {
    progress_.set_waiting(replica_, false);
    progress_.set_finished(replica_, step_);
  }

 private:
  ProgressBoard& progress_;
  int replica_;
  int step_;
};

}  // namespace

ReplicaLink::ReplicaLink(RankGroup& group, const std::vector<Action>& list, int num_channels,
                         const FabricOptions& options)
    : position_(position_in(group)), deadline_(options.deadline) {
  if (position_.count == 1) return;
  program_.ranks.assign(static_cast<std::size_t>(position_.count), list);
  FabricOptions own = options;
  own.extent = {.num_stages = num_channels, .num_microbatches = position_.count * position_.count};
  fabric_ = group.connect(program_, own);
  transport_ = &fabric_->endpoint(position_.index);
}

ReplicaLink::~ReplicaLink() = default;

void ReplicaLink::begin_step(const std::vector<Action>& list) {
  step_ = 0;
  deferred_.clear();
  if (fabric_ == nullptr) return;
  program_.ranks.assign(static_cast<std::size_t>(position_.count), list);
  fabric_->begin_step(program_);
  is_in_step_ = true;
  transport_->begin_step(number_++);
}

void ReplicaLink::begin_list(Watch watch) {
  step_ = 0;
  PENSTOCK_ASSERT(deferred_.empty(), "nothing is left to do at the end of a list");
  bytes_.begin_step();
  if (fabric_ == nullptr) return;
  if (watch == Watch::Afresh) fabric_->begin_step(program_);
  transport_->begin_step(number_++);
}

void ReplicaLink::end_step() {
  PENSTOCK_ASSERT(deferred_.empty(), "nothing is left to do at the end of a step");
  if (!is_in_step_) return;
  is_in_step_ = false;
  fabric_->end_step();
}

std::exception_ptr ReplicaLink::fail_step(std::exception_ptr failure) {
  deferred_.clear();
  if (!is_in_step_) return failure;
  is_in_step_ = false;
  return fabric_->fail_step(std::move(failure));
}

void ReplicaLink::stop() noexcept {
  if (transport_ != nullptr) transport_->stop();
}

void ReplicaLink::go_to(int step) {
  step_ = step;
  if (fabric_ == nullptr) return;
  fabric_->progress().set_finished(position_.index, step);
  if (fabric_->is_stopped()) throw StoppedError();
}

// A key of its own for each pair, for there are transports that have one place per key.
MessageKey ReplicaLink::key_of(int from, int to, int channel, Direction direction) const {
  return {.stage = channel, .microbatch = from * position_.count + to, .direction = direction};
}

void ReplicaLink::send(int to_replica, int channel, Direction direction, Message& message) {
  transport_->send(to_replica, key_of(position_.index, to_replica, channel, direction), message);
}

void ReplicaLink::expect(int from_replica, int channel, Direction direction) {
  transport_->expect(from_replica, key_of(from_replica, position_.index, channel, direction));
}

void ReplicaLink::receive(int from_replica, int channel, Direction direction, Message& message,
                          const ReplicaWait& wait) {
  const Waiting waiting(fabric_->progress(), position_.index, wait.step, step_);
  try {
    transport_->receive(from_replica, key_of(from_replica, position_.index, channel, direction),
                        message);
  } catch (const DeadlineError&) {
    throw TransportError(fmt::format("waited {:.3g} s for replica {} to send its part of {}",
                                     std::chrono::duration<double>(deadline_).count(), from_replica,
                                     wait.what));
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("replica {} cannot send its part of {}: {}", from_replica,
                                     wait.what, error.what()));
  }
}

void ReplicaLink::run_deferred(std::size_t count) {
  for (; count > 0; --count) {
    const std::function<void()> work = std::move(deferred_.front());
    deferred_.pop_front();
    work();
  }
}

void ReplicaLink::finish() {
  while (!deferred_.empty()) run_deferred(1);
}

std::vector<Message> ReplicaLink::exchange(const Message& message, const std::string& what) {
  if (fabric_ == nullptr) return {message};
  if (is_in_step_) return exchange_in_step(message, what);
  begin_step(program_.ranks.front());
  try {
    std::vector<Message> told = exchange_in_step(message, what);
    end_step();
    return told;
  } catch (...) {
    std::rethrow_exception(fail_step(std::current_exception()));
  }
}

std::vector<Message> ReplicaLink::exchange_in_step(const Message& message,
                                                   const std::string& what) {
  const ReplicaWait wait{.what = what, .step = step_};
  std::vector<Message> told(static_cast<std::size_t>(position_.count));
  const auto for_each_other = [&](const auto& visit) {
    for (int replica = 0; replica < position_.count; ++replica) {
      if (replica != position_.index) visit(replica);
    }
  };
  for (const int channel : {kTold, kHeard}) {
    for_each_other([&](int replica) { expect(replica, channel, Direction::Forward); });
    for_each_other([&](int replica) {
      Message copy = channel == kTold ? message : Message();
      send(replica, channel, Direction::Forward, copy);
    });
    // That all have heard is heard too: then nobody can overtake the others, and a channel is
    // empty when it is used again.
    for_each_other([&](int replica) {
      Message heard;
      receive(replica, channel, Direction::Forward, heard, wait);
      if (channel == kTold) told[static_cast<std::size_t>(replica)] = std::move(heard);
    });
  }
  told[static_cast<std::size_t>(position_.index)] = message;
  return told;
}

}  // namespace penstock
