#include "penstock/run/processes/internal/monitor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "penstock/run/libtorch/cause.h"
#include "penstock/run/processes/group_error.h"
#include "penstock/run/processes/internal/monitor_state.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;

constexpr auto kGoodbyeTime = std::chrono::hours(1);  // ends by itself, or by the watchdog
constexpr auto kEndTime = milliseconds(200);          // for the store thread to come home
constexpr auto kHolderEndTime = milliseconds(1000);   // of the rank that has to wait for others
constexpr auto kReportTime = milliseconds(2000);      // for the store to take a report
constexpr auto kBlameTime = milliseconds(5000);       // for the store to tell who is missing
constexpr auto kVerdictTime = milliseconds(1500);     // for a death to be noticed by anybody

bool have_all(const std::vector<std::string>& values) {
  return std::none_of(values.begin(), values.end(),
                      [](const auto& value) { return value.empty(); });
}

}  // namespace

Monitor::Monitor(std::shared_ptr<State> state) : state_(std::move(state)) {
  store_thread_ = std::thread([state = state_] { state->serve_store(); });
  watchdog_ = std::thread([state = state_] { state->guard_store(); });
}

// The threads are there before the ring is, so that failures are known while it is made.
Monitor::Monitor(World& world, const MonitorOptions& options)
    : Monitor(std::make_shared<State>(world, options)) {
  const auto note_closed = [state = state_](int rank) {
    state->queue([state, rank] { state->note_closed(rank); });
  };
  connect(State::kWatch, world.timeout(), [&] {
    try {
      ring_ = std::make_unique<RingWatch>(world, options.group, note_closed,
                                          [this] { require_healthy(); });
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw GroupError(fmt::format("{} could not connect to the others, to watch them: {}",
                                   state_->name(), cause_of(error)));
    }
  });
  state_->queue([state = state_] { state->rely_on_ring(); });
}

Monitor::~Monitor() {
  const bool is_unwinding = std::uncaught_exceptions() > num_exceptions_;
  if (is_unwinding) {
    give_up("");
  } else if (state_->failure().empty()) {
    state_->run_on_store([state = state_] { state->say_goodbye(); }, kGoodbyeTime);
  }
  ring_.reset();
  if (state_->end(state_->holds_store() ? kHolderEndTime : kEndTime)) {
    store_thread_.join();
  } else {
    store_thread_.detach();  // it hangs in the store, whose other end is gone
  }
  watchdog_.join();
}

const std::vector<std::string>& Monitor::names() const {
  return state_->names();
}

void Monitor::begin_step(const WatchedStep& step) {
  state_->begin_step(step);
}

void Monitor::end_step() {
  state_->end_step();
}

std::string Monitor::report(const std::string& reason) {
  state_->run_on_store([state = state_, reason] { state->publish_failure(reason); }, kReportTime);
  state_->fail(reason);  // if even that did not work
  return state_->failure();
}

void Monitor::give_up(const std::string& reason) {
  if (!state_->failure().empty()) return;
  report(fmt::format("{} has failed outside of a step{}{}", state_->name(),
                     reason.empty() ? "" : ": ", reason));
}

void Monitor::require_healthy() const {
  if (const std::string failure = state_->failure(); !failure.empty()) throw GroupError(failure);
}

std::string Monitor::explain(const std::string& symptom) {
  const std::string failure = state_->wait_for_failure(kVerdictTime);
  return failure.empty() ? report(symptom) : failure;
}

void Monitor::connect(const std::string& topic, milliseconds patience,
                      const std::function<void()>& connect) {
  const auto begin = State::Clock::now();
  const auto tell = [&](const char* place) {
    state_->queue([state = state_, key = topic + place] { state->tell(key, "here"); });
  };
  tell(State::kCame);
  try {
    connect();
    const auto rest =
        std::chrono::duration_cast<milliseconds>(begin + patience - State::Clock::now());
    if (!have_all(gather(topic + State::kConnected, "here", rest))) {
      throw GroupError(state_->name() + " is connected, but not all others are");
    }
  } catch (const std::exception& error) {
    tell(State::kFailed);
    // A connection that breaks means that somebody has died, which others may know better.
    const bool is_late = State::Clock::now() - begin >= patience;
    if (!is_late) state_->wait_for_failure(kVerdictTime);
    throw GroupError(blame_missing(topic, error.what()));
  }
}

std::string Monitor::blame_missing(const std::string& topic, const std::string& symptom) {
  require_healthy();
  const bool is_done = state_->run_on_store(
      [state = state_, topic, symptom] { state->blame_missing(topic, symptom); }, kBlameTime);
  if (!is_done) state_->fail_alone(kBlameTime);
  return state_->failure();
}

std::vector<std::string> Monitor::exchange(const std::string& topic, const std::string& value,
                                           milliseconds timeout) {
  std::vector<std::string> values = gather(topic, value, timeout);
  if (have_all(values)) return values;
  std::string missing;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank].empty()) missing += (missing.empty() ? "" : ", ") + names()[rank];
  }
  throw GroupError(report(fmt::format("waited {:.3g} s for {} to connect a pipeline",
                                      std::chrono::duration<double>(timeout).count(), missing)));
}

std::vector<std::string> Monitor::gather(const std::string& topic, const std::string& value,
                                         milliseconds timeout) {
  const auto end = State::Clock::now() + timeout;
  // What the store thread finds is its own until it is done, for it may be so after this call.
  struct Answer {
    bool is_complete = false;
    std::vector<std::string> values;
  };
  std::vector<std::string> values;
  bool is_told = false;
  for (;;) {
    require_healthy();
    const auto answer = std::make_shared<Answer>(Answer{.values = values});
    const bool is_done = state_->run_on_store(
        [state = state_, topic, value, answer, is_told] {
          if (!is_told) state->tell(topic, value);
          answer->is_complete = state->have_all(topic, answer->values);
        },
        timeout);
    require_healthy();
    if (is_done) {
      is_told = true;
      values = std::move(answer->values);
      if (answer->is_complete) return values;
    }
    if (State::Clock::now() >= end) break;
    state_->wait_for_failure(milliseconds(2));
  }
  if (!is_told) {
    state_->fail_alone(timeout);
    require_healthy();
  }
  return values;
}

}  // namespace penstock
