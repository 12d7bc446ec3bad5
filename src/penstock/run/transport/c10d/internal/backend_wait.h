#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/run/libtorch/c10d_backend.h"

namespace penstock {

// How a backend lets others learn that an operation is over.
enum class WaitStyle {
  // It can be asked at any time. An operation that is forgotten goes on, with memory that may be
  // gone by then; MPI ends the process.
  Polled,
  // Gloo: it is asked once, for a second time would wait for ever, and the answer comes when the
  // operation is over, or when another thread aborts the wait. One that is forgotten is cancelled.
  Interrupted,
};

WaitStyle wait_style_of(const BackendPtr& backend);

// A send or receive that a backend works on.
class BackendOperation {
 public:
  BackendOperation() = default;
  BackendOperation(WorkPtr work, WaitStyle style) : work_(std::move(work)), style_(style) {}
  BackendOperation(const BackendOperation&) = delete;
  BackendOperation& operator=(const BackendOperation&) = delete;
  BackendOperation(BackendOperation&&) noexcept = default;
  BackendOperation& operator=(BackendOperation&&) noexcept = default;
  ~BackendOperation() = default;

  bool is_pending() const { return work_.defined(); }

  // Whether an end of this object would leave the backend at work in the memory of the message.
  bool outlives_this() const { return is_pending() && style_ == WaitStyle::Polled; }

  // Lets the operation go on to the end of the process, with the memory it works in.
  void leave_behind(const std::vector<at::Tensor>& memory);

 private:
  friend class BackendWaits;
  WorkPtr work_;
  WaitStyle style_ = WaitStyle::Interrupted;
};

// Waits for operations in a way that can be ended.
//
// Gloo closes all connections when a wait of its own runs out of time; so waits there have no end,
// and a thread ends them from outside, after which the operation goes on.
class BackendWaits {
 public:
  enum class Result { Done, Late, Stopped };

  BackendWaits(std::chrono::nanoseconds deadline, WaitStyle style);
  BackendWaits(const BackendWaits&) = delete;
  BackendWaits& operator=(const BackendWaits&) = delete;
  BackendWaits(BackendWaits&&) = delete;
  BackendWaits& operator=(BackendWaits&&) = delete;
  ~BackendWaits();

  // The operation is over if it is done, or if libtorch throws because the peer is gone.
  Result wait(BackendOperation& operation);

  // From now on, no wait ends later than `time` from now. For the thread that waits.
  void finish_within(std::chrono::nanoseconds time);

  // Ends the wait, and all that come. Safe from any thread.
  void stop() noexcept;
  bool is_stopped() const;

 private:
  using Clock = std::chrono::steady_clock;

  // Whether the operation is over; otherwise the wait for it has ended.
  bool wait_interrupted(const WorkPtr& work, Clock::time_point end);
  bool wait_polled(const WorkPtr& work, Clock::time_point end) const;
  void watch();

  const std::chrono::nanoseconds deadline_;
  Clock::time_point latest_ = Clock::time_point::max();
  mutable std::mutex mutex_;  // of all below
  std::condition_variable closing_;
  bool is_closing_ = false;
  bool is_stopped_ = false;
  WorkPtr waited_for_;
  Clock::time_point end_;
  std::thread watcher_;  // of interrupted waits
};

}  // namespace penstock
