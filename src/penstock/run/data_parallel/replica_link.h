#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/data_parallel/parameter_bytes.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// Which of the pipelines that train together.
struct ReplicaPosition {
  int index = 0;
  int count = 1;
};

// What is waited for, for messages: the part of a replica of `what`, and the place in the rank's
// list of the action that began it.
struct ReplicaWait {
  std::string what;  // "the gradients of stage 2"
  int step = 0;
};

// One rank's way to its replicas: the ranks with the same stages of the other pipelines. Used by
// the thread of the rank during a step, by the caller between steps; except for stop().
//
// Messages have a channel and a direction. Between two steps everything that was sent is received.
class ReplicaLink {
 public:
  static constexpr int kNumOwnChannels = 2;  // the first ones, for exchange()

  // Without replicas. Nothing is ever sent.
  ReplicaLink() = default;
  // `list` is that of the rank. Every replica makes its link with the same list and channels.
  ReplicaLink(RankGroup& group, const std::vector<Action>& list, int num_channels,
              const FabricOptions& options);
  ReplicaLink(const ReplicaLink&) = delete;
  ReplicaLink& operator=(const ReplicaLink&) = delete;
  ReplicaLink(ReplicaLink&&) = delete;
  ReplicaLink& operator=(ReplicaLink&&) = delete;
  ~ReplicaLink();

  int replica() const { return position_.index; }
  int num_replicas() const { return position_.count; }

  // Around each run of a list, while the rank does not run; like those of Fabric.
  void begin_step(const std::vector<Action>& list);
  void end_step();
  std::exception_ptr fail_step(std::exception_ptr failure);

  // Within a step, by the thread of the rank: the same list is run once more. An exchange() must
  // have ended what the run before has sent. Whoever watches this process gets to know of it, if
  // the rank is the only one there is to watch.
  enum class Watch { Same, Afresh };
  void begin_list(Watch watch);

  // Makes every wait end with StoppedError. Safe from any thread.
  void stop() noexcept;

  // The rank is at this place of its list. Throws StoppedError if it is to give up.
  void go_to(int step);
  int step() const { return step_; }

  void send(int to_replica, int channel, Direction direction, Message& message);
  void expect(int from_replica, int channel, Direction direction);
  void receive(int from_replica, int channel, Direction direction, Message& message,
               const ReplicaWait& wait);

  // Work that has to wait for other replicas, left for later. Work may leave more work.
  void defer(std::function<void()> work) { deferred_.push_back(std::move(work)); }
  std::size_t num_deferred() const { return deferred_.size(); }
  void run_deferred(std::size_t count);
  void finish();  // until nothing is left

  // Tells `message` to all replicas and returns what each of them tells, in their order. To be
  // called by all of them, in a step or between steps. Returns when all have everything.
  std::vector<Message> exchange(const Message& message, const std::string& what);

  ByteMeter& bytes() { return bytes_; }
  const ByteMeter& bytes() const { return bytes_; }

 private:
  MessageKey key_of(int from, int to, int channel, Direction direction) const;
  std::vector<Message> exchange_in_step(const Message& message, const std::string& what);

  ReplicaPosition position_;
  std::chrono::nanoseconds deadline_ = {};
  Schedule program_;  // the list, once per replica
  std::unique_ptr<Fabric> fabric_;
  Transport* transport_ = nullptr;
  std::int64_t number_ = 0;  // of steps and exchanges
  bool is_in_step_ = false;
  int step_ = 0;  // the position in the list
  std::deque<std::function<void()>> deferred_;
  ByteMeter bytes_;
};

}  // namespace penstock
