#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "penstock/run/libtorch/gloo.h"

namespace penstock {

// A send or receive that Gloo works on, which ends when this object does. Gloo must be asked about
// its end exactly once: a second time would wait for ever.
class GlooOperation {
 public:
  GlooOperation() = default;
  explicit GlooOperation(WorkPtr work) : work_(std::move(work)) {}
  bool is_pending() const { return work_.defined(); }

 private:
  friend class GlooWaits;
  WorkPtr work_;
};

// Waits for operations in a way that can be ended. Gloo cannot be polled, and closes all
// connections when a wait of its own runs out of time; so waits there have no end, and a thread
// ends them from outside, after which the operation goes on.
class GlooWaits {
 public:
  enum class Result { Done, Late, Stopped };

  explicit GlooWaits(std::chrono::nanoseconds deadline);
  GlooWaits(const GlooWaits&) = delete;
  GlooWaits& operator=(const GlooWaits&) = delete;
  GlooWaits(GlooWaits&&) = delete;
  GlooWaits& operator=(GlooWaits&&) = delete;
  ~GlooWaits();

  // The operation is over if it is done, or if libtorch throws because the peer is gone.
  Result wait(GlooOperation& operation);

  // From now on, no wait ends later than `time` from now. For the thread that waits.
  void finish_within(std::chrono::nanoseconds time);

  // Ends the wait, and all that come. Safe from any thread.
  void stop() noexcept;
  bool is_stopped() const;

 private:
  void watch();

  const std::chrono::nanoseconds deadline_;
  std::chrono::steady_clock::time_point latest_ = std::chrono::steady_clock::time_point::max();
  mutable std::mutex mutex_;  // of all below
  std::condition_variable closing_;
  bool is_closing_ = false;
  bool is_stopped_ = false;
  WorkPtr waited_for_;
  std::chrono::steady_clock::time_point end_;
  std::thread watcher_;
};

}  // namespace penstock
