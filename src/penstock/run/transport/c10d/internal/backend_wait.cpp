#include "penstock/run/transport/c10d/internal/backend_wait.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "penstock/base/assert.h"

namespace penstock {
namespace {

constexpr auto kForever = std::chrono::hours(1000);

// What backends still work on, for as long as this process lives.
struct LeftBehind {
  struct Operation {
    WorkPtr work;
    std::vector<at::Tensor> memory;
  };

  std::mutex mutex;
  std::vector<Operation> operations;

  static LeftBehind& instance() {
    static auto* const left = new LeftBehind;  // never ends, for an operation must not
    return *left;
  }
};

}  // namespace

WaitStyle wait_style_of(const BackendPtr& backend) {
  return backend->getBackendName() == "gloo" ? WaitStyle::Interrupted : WaitStyle::Polled;
}

void BackendOperation::leave_behind(const std::vector<at::Tensor>& memory) {
  LeftBehind& left = LeftBehind::instance();
  const std::lock_guard lock(left.mutex);
  left.operations.push_back({std::move(work_), memory});
}

BackendWaits::BackendWaits(std::chrono::nanoseconds deadline, WaitStyle style)
    : deadline_(deadline) {
  if (style == WaitStyle::Interrupted) watcher_ = std::thread([this] { watch(); });
}

BackendWaits::~BackendWaits() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  closing_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

BackendWaits::Result BackendWaits::wait(BackendOperation& operation) {
  PENSTOCK_ASSERT(operation.is_pending(), "a backend is asked once about each operation");
  const Clock::time_point end = std::min(Clock::now() + deadline_, latest_);
  bool is_done = false;
  try {
    is_done = operation.style_ == WaitStyle::Interrupted ? wait_interrupted(operation.work_, end)
                                                         : wait_polled(operation.work_, end);
  } catch (...) {
    operation.work_.reset();
    throw;
  }
  if (!is_done) return is_stopped() ? Result::Stopped : Result::Late;
  operation.work_.reset();
  return Result::Done;
}

bool BackendWaits::wait_interrupted(const WorkPtr& work, Clock::time_point end) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) return false;
    waited_for_ = work;
    end_ = end;
  }
  const auto forget = [this] {
    const std::lock_guard lock(mutex_);
    waited_for_.reset();
  };
  bool is_done = false;
  try {
    is_done = work->wait(kForever);
  } catch (...) {
    forget();
    throw;
  }
  forget();
  return is_done;
}

bool BackendWaits::wait_polled(const WorkPtr& work, Clock::time_point end) const {
  constexpr auto kSpin = std::chrono::microseconds(50);
  constexpr auto kPause = std::chrono::microseconds(20);
  if (is_stopped()) return false;
  const Clock::time_point spin_end = Clock::now() + kSpin;
  while (!work->isCompleted()) {
    const Clock::time_point now = Clock::now();
    if (now >= end || is_stopped()) return false;
    if (now >= spin_end) std::this_thread::sleep_for(kPause);
  }
  if (const std::exception_ptr failure = work->exception()) std::rethrow_exception(failure);
  work->wait();  // returns at once, and does what is left to do
  return true;
}

// Looks at the time now and then, so that a wait need not wake this thread.
void BackendWaits::watch() {
  constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(5);
  constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(500);
  const auto interval = std::clamp(deadline_ / 8, kShortest, kLongest);
  std::unique_lock lock(mutex_);
  while (!closing_.wait_for(lock, interval, [this] { return is_closing_; })) {
    if (waited_for_.defined() && Clock::now() >= end_) {
      waited_for_->abort();
      waited_for_.reset();  // once is enough
    }
  }
}

void BackendWaits::finish_within(std::chrono::nanoseconds time) {
  latest_ = Clock::now() + time;
}

void BackendWaits::stop() noexcept {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  if (waited_for_.defined()) waited_for_->abort();
}

bool BackendWaits::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return is_stopped_;
}

}  // namespace penstock
