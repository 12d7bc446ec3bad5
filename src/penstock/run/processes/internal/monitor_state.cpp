#include "penstock/run/processes/internal/monitor_state.h"

#include <utility>

#include <fmt/format.h>

#include "penstock/base/seconds.h"
#include "penstock/run/processes/group_error.h"
#include "penstock/run/processes/process_ranks.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;

std::string name_of(const World& world, int rank) {
  const Member& member = world.member(rank);
  return fmt::format("rank {} (pid {} at {})", rank, member.process_id, member.address);
}

// Of one monitor: a group may have another one later, which must not read what is left of this.
std::string keys_of(World& world, const Group& group) {
  const std::string name = "monitor/" + group.name;
  return fmt::format("{}/{}", name, world.next_count(name));
}

// A connection of the monitor's own.
std::unique_ptr<Store> connect_to_store(const World& world, const Store& store) {
  try {
    return store.connect_again();
  } catch (const WorldError& error) {
    throw GroupError(
        fmt::format("{} is gone, or does not answer, and with it what the ranks share: {}",
                    name_of(world, 0), error.what()));
  }
}

}  // namespace

Monitor::State::State(World& world, const MonitorOptions& options)
    : group_(options.group),
      rank_(options.group.rank_of(world.rank())),
      replay_path_(options.replay_path),
      idle_deadline_(options.deadline),
      holds_store_(world.rank() == 0),
      keys_(keys_of(world, options.group)),
      host_(world, options.group),
      store_holder_(name_of(world, 0)),
      store_(connect_to_store(world, world.store())),
      standby_(world.standby()),
      holds_standby_(world.member(world.rank()).standby_port != 0),
      clients_(world.store_clients()) {
  for (const int rank : group_.ranks) names_.push_back(name_of(world, rank));
}

std::string Monitor::State::key(const std::string& topic, int rank) const {
  return fmt::format("{}/{}/{}", keys_, topic, rank);
}

std::string Monitor::State::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Monitor::State::begin_step(const WatchedStep& step) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    throw GroupError(fmt::format("the ranks cannot work together any more: {}", failure_));
  }
  step_ = step;
  ++num_steps_;
}

void Monitor::State::end_step() {
  const std::lock_guard lock(mutex_);
  step_.reset();
}

void Monitor::State::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = text;
  if (step_) step_->transport->stop();
  changed_.notify_all();
}

std::optional<WatchedStep> Monitor::State::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

void Monitor::State::queue(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

bool Monitor::State::run_on_store(std::function<void()> work, milliseconds patience) {
  const auto is_done = std::make_shared<bool>(false);
  queue([this, is_done, work = std::move(work)] {
    work();
    const std::lock_guard lock(mutex_);
    *is_done = true;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  const bool had_failed = !failure_.empty();
  changed_.wait_for(lock, patience, [&] {
    return *is_done || is_store_thread_home_ || (!had_failed && !failure_.empty());
  });
  return *is_done;
}

std::string Monitor::State::wait_for_failure(milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return !failure_.empty(); });
  return failure_;
}

bool Monitor::State::end(milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_ending_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, patience, [&] { return is_store_thread_home_; });
}

RankPosition Monitor::State::position() const {
  const std::lock_guard lock(mutex_);
  return position_now();
}

RankPosition Monitor::State::position_now() const {
  RankPosition position{.is_known = true, .has_left = has_left_, .num_steps = num_steps_};
  if (step_) {
    position.is_in_step = true;
    position.is_waiting = step_->progress->is_waiting(rank_);
    position.finished = step_->progress->finished(rank_);
    position.exchange = step_->progress->exchange(rank_);
  }
  return position;
}

}  // namespace penstock
