#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/processes/internal/ring_watch.h"
#include "penstock/run/transport/progress_board.h"
#include "penstock/run/transport/transport.h"
#include "penstock/run/world/world.h"

namespace penstock {

// The step that the rank of this process is in.
struct WatchedStep {
  std::shared_ptr<const Schedule> program;  // is read by others after the end of the step, too
  const ProgressBoard* progress = nullptr;
  Transport* transport = nullptr;  // is stopped when anything fails
  std::chrono::nanoseconds deadline = {};
};

struct MonitorOptions {
  Group group;
  std::string replay_path;
  std::chrono::nanoseconds deadline;  // between steps
};

// Watches the other ranks of a group and tells them how this one is. The first failure anywhere is
// the failure of all: it is written to the store, and stops the step that each rank is in.
//
//   store thread   the only one to use the store: tells the position of this rank, looks for
//                  failures, judges waits. It may hang, if whoever holds the store does.
//   watchdog       notices that.
//   standby thread is there while the store is silent: makes the report with those that notice it,
//                  too, over the store that another rank holds.
//   ring watch     notices that the process of the next rank has ended, if that is on another host;
//                  of this host, the kernel tells the store thread.
//
// Safe from any thread, except for construction and destruction.
class Monitor {
 public:
  Monitor(World& world, const MonitorOptions& options);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  Monitor(Monitor&&) = delete;
  Monitor& operator=(Monitor&&) = delete;
  ~Monitor();

  // "rank 2 (pid 4711 on a)", by rank of the group.
  const std::vector<std::string>& names() const;

  // Throws GroupError if anything has failed before.
  void begin_step(const WatchedStep& step);
  void end_step();

  // Makes `reason` the failure of all ranks, unless another one was first. Returns that which was.
  std::string report(const std::string& reason);

  // Reports that this rank ends outside of a step, unless the group has failed before.
  void give_up(const std::string& reason);

  // Throws GroupError if anything has failed.
  void require_healthy() const;

  // The failure behind a `symptom` of this rank's transport: what the monitor finds out within a
  // second or two, or else the symptom itself, which is then reported.
  std::string explain(const std::string& symptom);

  // Runs `connect`, in which the ranks of the group connect with each other, and waits until all of
  // them have: a rank that left sooner would break the connections of others with the Gloo of
  // libtorch 2.x. If it throws, so does this: a GroupError with what has failed, or with the ranks
  // that do not answer or have not come.
  // All ranks have the same `topic`, once each, and give `connect` about as much time.
  void connect(const std::string& topic, std::chrono::milliseconds patience,
               const std::function<void()>& connect);

  // Tells `value` to all ranks of the group under `topic`, and returns what they tell. Throws
  // GroupError if any of them fails, or is not there in time.
  std::vector<std::string> exchange(const std::string& topic, const std::string& value,
                                    std::chrono::milliseconds timeout);

 private:
  class State;

  explicit Monitor(std::shared_ptr<State> state);
  // As exchange(), but those who are not there in time have an empty text.
  std::vector<std::string> gather(const std::string& topic, const std::string& value,
                                  std::chrono::milliseconds timeout);
  std::string blame_missing(const std::string& topic, const std::string& symptom);

  // Shared with the store thread and the standby thread, which are left behind if they hang at the
  // end.
  std::shared_ptr<State> state_;
  std::unique_ptr<RingWatch> ring_;
  std::thread store_thread_;
  std::thread watchdog_;
  int num_exceptions_ = std::uncaught_exceptions();
};

}  // namespace penstock
