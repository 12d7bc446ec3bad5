#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "penstock/base/assert.h"
#include "penstock/base/seconds.h"
#include "penstock/run/processes/internal/monitor_state.h"

// What the store thread of a monitor does.
namespace penstock {
namespace {

using std::chrono::milliseconds;

constexpr auto kPositionsTime = milliseconds(800);  // for the others to say where they are
constexpr auto kHearingTime = milliseconds(1000);   // for a rank to say that it has hung up
constexpr auto kGrace = milliseconds(1000);         // to take what was sent by a rank that has left
constexpr auto kFirstReportTime = milliseconds(500);  // for a first failure to be written down
constexpr const char* kOver = "/over";                // behind the key of a stall

}  // namespace

void Monitor::State::serve_store() {
  try {
    for (;;) {
      tick();
      run_queued();
      std::unique_lock lock(mutex_);
      if (is_ending_ && work_.empty()) break;
      changed_.wait_for(lock, kTick, [&] { return is_ending_ || !work_.empty(); });
    }
  } catch (const std::exception& error) {
    fail(fmt::format("{} is gone, and with it what the ranks share: {}", store_holder_,
                     error.what()));
  }
  const std::lock_guard lock(mutex_);
  is_store_thread_home_ = true;
  changed_.notify_all();
}

void Monitor::State::run_queued() {
  for (;;) {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    take_failure();  // what is there already counts first
    work();
  }
}

void Monitor::State::tick() {
  if (!failure().empty()) return;
  if (take_failure()) return;
  for (const int rank : host_.take_ended()) note_ended(rank);
  for (const int rank : clients_.take_gone()) {
    if (group_.rank_of(rank) != Group::kNotAMember) note_closed(rank);
  }
  tell_position();
  answer_stall();
  judge_wait();
}

bool Monitor::State::take_failure() {
  const std::optional<std::string> record = store_->find("monitor/failure");
  {
    const std::lock_guard lock(mutex_);
    is_answered_ = true;
  }
  if (!record) return false;
  if (!failure().empty()) return true;
  const auto json = nlohmann::json::parse(*record, nullptr, false);
  const std::string text = json.is_object() ? json.value("text", "") : *record;
  std::vector<RankPosition> positions;
  const bool is_of_this_group = json.is_object() && json.value("group", "") == group_.name;
  if (is_of_this_group) {
    for (const auto& entry : json.value("positions", std::vector<std::string>())) {
      positions.push_back(parse_position(entry));
    }
  }
  if (!positions.empty()) leave_replay(positions, text);
  tell("seen", "");
  fail(text);
  if (!holds_store_) return true;
  const int gone = is_of_this_group ? json.value("gone", Group::kNotAMember) : Group::kNotAMember;
  let_others_see([&](int rank) {
    const bool is_silent =
        !positions.empty() && !positions[static_cast<std::size_t>(rank)].is_known;
    return rank != gone && !is_silent;
  });
  return true;
}

// Ranks that have not read the failure could not do so once this process, which holds it, has
// ended.
void Monitor::State::let_others_see(const std::function<bool(int rank)>& is_there) {
  const Clock::time_point end = Clock::now() + kFirstReportTime;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (!is_there(rank)) continue;
    while (!store_->find(key("seen", rank)) && Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

// A file store only ever grows, so others do not hear of every move. How old a position is makes up
// for that; and who finds a stall asks.
void Monitor::State::tell_position(Telling telling) {
  constexpr auto kLongestPause = std::chrono::nanoseconds(std::chrono::seconds(5));
  constexpr int kPausesPerDeadline = 10;
  const RankPosition now = position();
  const Clock::time_point time = Clock::now();
  if (!(now == own_)) moved_ = time;
  own_ = now;
  if (now == told_) return;
  const std::optional<WatchedStep> step = this->step();
  const auto deadline = step ? step->deadline : idle_deadline_;
  const auto pause = std::min(kLongestPause, deadline / kPausesPerDeadline);
  if (telling == Telling::Sometimes && time - told_time_ < pause) return;
  const auto age = std::chrono::duration_cast<milliseconds>(time - moved_);
  tell("position", to_text(ToldPosition{.position = now, .age = age}));
  told_ = now;
  told_time_ = time;
}

ToldPosition Monitor::State::position_of(int rank) {
  return parse_told_position(store_->find(key("position", rank)).value_or(""));
}

// The others want to know where this rank is.
void Monitor::State::answer_stall() {
  constexpr auto kPatience = milliseconds(2000);  // with whoever has found the stall
  const std::optional<std::string> found = store_->find(stall_key());
  if (!found) return;
  if (!answered_) {
    tell_position(Telling::Now);
    answered_ = Answer{.position = told_, .time = Clock::now()};
    const auto age = std::chrono::duration_cast<milliseconds>(answered_->time - moved_);
    tell(answer_topic(), to_text(ToldPosition{.position = told_, .age = age}));
  } else if (store_->find(stall_key() + kOver)) {
    answered_.reset();
    ++num_stalls_;
  } else if (Clock::now() - answered_->time > kPatience) {
    compose_stall(*found);
  }
}

void Monitor::State::judge_wait() {
  const RankPosition self = position();
  judge_.look(self, Clock::now());
  if (!self.is_waiting || answered_) return;
  const std::optional<WatchedStep> step = this->step();
  if (!step) return;
  const std::chrono::nanoseconds grace = std::min<std::chrono::nanoseconds>(kGrace, step->deadline);
  judge_.look_along_waits(
      *step->program, rank_, [this](int rank) { return position_of(rank); }, Clock::now());
  for (const PeerWait& wait : waits_of(*step->program, rank_, self)) {
    // What it has sent before may be here, and not taken yet.
    if (judge_.position_of(wait.rank).has_left && judge_.stalled_for(Clock::now()) >= grace) {
      publish_failure(fmt::format("{} has left, while {} waits for it {}",
                                  names_[static_cast<std::size_t>(wait.rank)], name(), wait.text));
      return;
    }
  }
  if (judge_.stalled_for(Clock::now()) < step->deadline) return;
  const std::string found =
      fmt::format("no progress for {:.3g} s, says {}", seconds(step->deadline), name());
  store_->set(stall_key(), found);
  answer_stall();
  compose_stall(found);
}

std::string Monitor::State::stall_key() const {
  return fmt::format("{}/stall/{}", keys_, num_stalls_);
}

std::string Monitor::State::answer_topic() const {
  return fmt::format("answer/{}", num_stalls_);
}

std::vector<std::string> Monitor::State::gather_answers() {
  const Clock::time_point end = Clock::now() + kPositionsTime;
  std::vector<std::string> answers;
  while (!have_all(answer_topic(), answers) && Clock::now() < end && !take_failure()) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  return answers;
}

// Whether that is so after the others have said where they are now.
bool Monitor::State::is_stalled(const WatchedStep& step, const std::vector<std::string>& answers) {
  if (!(position() == answered_->position)) return false;
  const auto answer_of = [&](int rank) {
    const std::string& answer = answers[static_cast<std::size_t>(rank)];
    return answer.empty() ? ToldPosition{judge_.position_of(rank)} : parse_told_position(answer);
  };
  judge_.look_along_waits(*step.program, rank_, answer_of, Clock::now());
  return judge_.stalled_for(Clock::now()) >= step.deadline;
}

void Monitor::State::compose_stall(const std::string& found) {
  PENSTOCK_ASSERT(answered_, "who asks the others has said where it is");
  const std::vector<std::string> answers = gather_answers();
  const std::optional<WatchedStep> step = this->step();
  if (!step || !is_stalled(*step, answers)) {
    store_->set(stall_key() + kOver, "");
    return;
  }
  std::vector<RankPosition> positions;
  positions.reserve(answers.size());
  for (const std::string& answer : answers) {
    positions.push_back(parse_told_position(answer).position);
  }
  publish_failure(fmt::format("{}: {}{}", found, blame(*step->program, positions, names_),
                              describe_positions(*step->program, positions, names_)),
                  positions);
}

void Monitor::State::blame_missing(const std::string& topic, const std::string& symptom) {
  if (take_failure()) return;
  tell(answer_topic(), to_text(ToldPosition{.position = position()}));
  store_->set(stall_key(), symptom);  // the others answer when they see it
  const std::vector<std::string> answers = gather_answers();
  std::vector<std::string> came;
  std::vector<std::string> connected;
  have_all(topic + kCame, came);
  have_all(topic + kConnected, connected);
  std::vector<std::string> missing;
  for (std::size_t rank = 0; rank < names_.size(); ++rank) {
    if (!connected[rank].empty() || (!came[rank].empty() && !answers[rank].empty())) continue;
    missing.push_back(names_[rank] + (came[rank].empty()
                                          ? " has not come to connect"
                                          : " does not answer: stopped, or cut off"));
  }
  publish_failure(missing.empty() ? symptom
                                  : fmt::format("{}; {}", fmt::join(missing, ", "), symptom));
}

void Monitor::State::tell(const std::string& topic, const std::string& value) {
  store_->set(key(topic, rank_), value);
}

bool Monitor::State::have_all(const std::string& topic, std::vector<std::string>& values) {
  values.resize(names_.size());
  bool is_complete = true;
  for (int rank = 0; rank < group_.size(); ++rank) {
    std::string& value = values[static_cast<std::size_t>(rank)];
    if (value.empty()) value = store_->find(key(topic, rank)).value_or("");
    is_complete = is_complete && !value.empty();
  }
  return is_complete;
}

void Monitor::State::publish_failure(const std::string& reason,
                                     const std::vector<RankPosition>& positions, int gone) {
  if (take_failure()) return;
  if (store_->add("monitor/failures", 1) > 1) {
    const Clock::time_point end = Clock::now() + kFirstReportTime;
    while (!take_failure() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    if (!failure().empty()) return;
  }
  nlohmann::json record = {{"text", reason}, {"group", group_.name}, {"gone", gone}};
  for (const RankPosition& position : positions) {
    record["positions"].push_back(position.is_known ? to_text(position) : "");
  }
  store_->set("monitor/failure",
              record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  take_failure();
}

void Monitor::State::note_closed(int world_rank) {
  if (host_.watches(world_rank)) return;  // the kernel tells if it has ended
  // A rank that could not connect closes what it has, and says why.
  const int rank = group_.rank_of(world_rank);
  const Clock::time_point end = Clock::now() + kHearingTime;
  while (!store_->find(key(std::string(kWatch) + kConnected, rank)) && Clock::now() < end) {
    if (take_failure() || store_->find(key(std::string(kWatch) + kFailed, rank))) return;
    answer_stall();
    std::this_thread::sleep_for(milliseconds(20));
  }
  note_ended(world_rank);
}

void Monitor::State::rely_on_ring() {
  clients_ = {};
}

void Monitor::State::note_ended(int world_rank) {
  if (!failure().empty()) return;
  const int rank = group_.rank_of(world_rank);
  const RankPosition last = position_of(rank).position;
  if (last.has_left) return;
  std::string text = fmt::format("{} has died: killed by a signal, or ended without a word",
                                 names_[static_cast<std::size_t>(rank)]);
  if (last.is_known) {
    text += last.is_in_step
                ? fmt::format("; it was last seen in its step {}, after {} actions", last.num_steps,
                              last.finished)
                : fmt::format("; it was last seen outside of a step, after {}", last.num_steps);
  }
  publish_failure(text, {}, rank);
}

void Monitor::State::say_goodbye() {
  if (!failure().empty()) return;
  {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
  }
  tell_position(Telling::Now);
  store_->find(key("position", rank_));  // has come back, so the store has it
  if (!holds_store_) return;
  const Clock::time_point end = Clock::now() + idle_deadline_;
  for (int rank = 0; rank < group_.size(); ++rank) {
    while (Clock::now() < end && !take_failure()) {
      run_queued();  // one of them may die instead
      if (position_of(rank).position.has_left) break;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

void Monitor::State::leave_replay(const std::vector<RankPosition>& positions,
                                  const std::string& reason) {
  if (replay_path_.empty()) return;
  for (int rank = 0; rank < rank_; ++rank) {
    if (positions[static_cast<std::size_t>(rank)].is_known) return;  // it will do so
  }
  const std::optional<WatchedStep> step = this->step();
  if (!step) return;
  write_replay_file(replay_path_, write_replay(*step->program, positions, reason));
}

}  // namespace penstock
