#include "penstock/run/transport/c10d/internal/gloo_wait.h"

#include <algorithm>
#include <utility>

#include "penstock/base/assert.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kForever = std::chrono::hours(1000);

}  // namespace

GlooWaits::GlooWaits(std::chrono::nanoseconds deadline)
    : deadline_(deadline), watcher_([this] { watch(); }) {}

GlooWaits::~GlooWaits() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  closing_.notify_all();
  watcher_.join();
}

GlooWaits::Result GlooWaits::wait(GlooOperation& operation) {
  PENSTOCK_ASSERT(operation.is_pending(), "Gloo is asked once about each operation");
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) return Result::Stopped;
    waited_for_ = operation.work_;
    end_ = std::min(Clock::now() + deadline_, latest_);
  }
  bool is_done = false;
  try {
    is_done = operation.work_->wait(kForever);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    waited_for_.reset();
    operation.work_.reset();
    throw;
  }
  const std::lock_guard lock(mutex_);
  waited_for_.reset();
  if (!is_done) return is_stopped_ ? Result::Stopped : Result::Late;
  operation.work_.reset();
  return Result::Done;
}

// Looks at the time now and then, so that a wait need not wake this thread.
void GlooWaits::watch() {
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

void GlooWaits::finish_within(std::chrono::nanoseconds time) {
  latest_ = Clock::now() + time;
}

void GlooWaits::stop() noexcept {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  if (waited_for_.defined()) waited_for_->abort();
}

bool GlooWaits::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return is_stopped_;
}

}  // namespace penstock
