#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "penstock/run/processes/internal/host_watch.h"
#include "penstock/run/processes/internal/monitor.h"
#include "penstock/run/processes/internal/rank_position.h"
#include "penstock/run/processes/internal/wait_judge.h"
#include "penstock/run/world/store.h"
#include "penstock/run/world/store_clients.h"

namespace penstock {

// What the threads of a monitor share.
class Monitor::State : public std::enable_shared_from_this<Monitor::State> {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kTick = std::chrono::milliseconds(50);  // of both threads

  static constexpr const char* kWatch = "watch";  // topic of Monitor::connect() for the ring
  // What a rank tells while ranks connect, behind the topic.
  static constexpr const char* kCame = "/came";
  static constexpr const char* kConnected = "/connected";
  static constexpr const char* kFailed = "/failed";

  State(World& world, const MonitorOptions& options);

  const std::vector<std::string>& names() const { return names_; }
  bool holds_store() const { return holds_store_; }
  const std::string& name() const { return names_[static_cast<std::size_t>(rank_)]; }

  // The bodies of the two threads; they return after end().
  void serve_store();
  void guard_store();

  void begin_step(const WatchedStep& step);
  void end_step();
  std::string failure() const;

  // From now on `text` is the failure of this rank, if it is the first; stops the step.
  void fail(const std::string& text);

  // The same, because the store has not answered for so long, and the others cannot be asked.
  void fail_alone(std::chrono::nanoseconds silence);

  // Has the store thread run `work`, and waits until it has, a failure comes, or the time is up.
  // True if it has run.
  bool run_on_store(std::function<void()> work, std::chrono::milliseconds patience);

  // The same, without waiting.
  void queue(std::function<void()> work);

  // Waits until there is a failure or the time is up; the failure, or an empty text.
  std::string wait_for_failure(std::chrono::milliseconds patience);

  // Both threads are to come home. True if the store thread does so in time.
  bool end(std::chrono::milliseconds patience);

  // The rest is for the store thread alone.
  void publish_failure(const std::string& reason, const std::vector<RankPosition>& positions = {},
                       int gone = Group::kNotAMember);
  void note_closed(int world_rank);  // its connection of the ring, or to the store
  void rely_on_ring();               // it is there, and need not be made up for any more
  void say_goodbye();
  void tell(const std::string& topic, const std::string& value);
  // This rank could not connect to the others. Publishes who keeps it from that: see
  // Monitor::connect().
  void blame_missing(const std::string& topic, const std::string& symptom);
  // What each rank of the group has told under `topic`, empty where nothing; true if all have.
  bool have_all(const std::string& topic, std::vector<std::string>& values);

 private:
  std::string key(const std::string& topic, int rank) const;
  void tick();
  void run_queued();
  void note_ended(int world_rank);
  bool take_failure();
  enum class Telling { Sometimes, Now };
  void tell_position(Telling telling = Telling::Sometimes);
  void answer_stall();
  void judge_wait();
  std::string stall_key() const;
  std::string answer_topic() const;
  std::vector<std::string> gather_answers();
  void compose_stall(const std::string& found);
  void leave_replay(const std::vector<RankPosition>& positions, const std::string& reason);
  void serve_standby();
  void fail_without_store(std::chrono::nanoseconds silence,
                          const std::vector<RankPosition>& positions);
  std::optional<std::chrono::nanoseconds> wait_for_silence(Store& standby);
  std::vector<RankPosition> gather_positions(Store& standby);
  std::string describe_silence(std::chrono::nanoseconds silence) const;
  RankPosition position() const;
  // With the mutex held.
  RankPosition position_now() const;
  std::chrono::nanoseconds patience() const { return step_ ? step_->deadline : idle_deadline_; }
  bool is_store_suspicious() const;
  ToldPosition position_of(int rank);
  bool is_stalled(const WatchedStep& step, const std::vector<std::string>& answers);
  std::optional<WatchedStep> step() const;
  void let_others_see(const std::function<bool(int rank)>& is_there);

  const Group group_;
  const int rank_;  // in the group
  const std::string replay_path_;
  const std::chrono::nanoseconds idle_deadline_;
  const bool holds_store_;
  const std::string keys_;  // what all of them begin with
  HostWatch host_;
  std::vector<std::string> names_;  // by rank of the group
  std::string store_holder_;
  std::unique_ptr<Store> store_;
  Store::Way standby_;  // empty: there is none
  const bool holds_standby_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string failure_;
  std::optional<WatchedStep> step_;
  int num_steps_ = 0;
  bool has_left_ = false;
  std::deque<std::function<void()>> work_;
  bool is_ending_ = false;
  bool is_store_thread_home_ = false;
  bool is_answered_ = false;               // by the store, since the watchdog looked
  std::chrono::nanoseconds silence_ = {};  // of the store
  enum class StandbyUse { None, Served, Lost };
  StandbyUse standby_use_ = StandbyUse::None;  // by its thread

  // Of the store thread.
  StoreClients clients_;  // until there is a ring
  RankPosition own_;
  Clock::time_point moved_;  // to there
  RankPosition told_;
  Clock::time_point told_time_;
  WaitJudge judge_;
  struct Answer {
    RankPosition position;
    Clock::time_point time;
  };
  std::optional<Answer> answered_;  // to who has found the stall that is looked into
  int num_stalls_ = 0;              // that were over before they were reported
};

}  // namespace penstock
