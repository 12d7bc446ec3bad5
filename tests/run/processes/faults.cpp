#include "tests/run/processes/faults.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "penstock/run/processes/process_ranks.h"
#include "tests/run/support/store_backend.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Where a rank that comes to harm notes the time before it does.
class FaultNote {
 public:
  FaultNote() {
    if (pipe(ends_.data()) != 0) throw std::runtime_error("pipe");
  }
  FaultNote(const FaultNote&) = delete;
  FaultNote& operator=(const FaultNote&) = delete;
  FaultNote(FaultNote&&) = delete;
  FaultNote& operator=(FaultNote&&) = delete;
  ~FaultNote() {
    for (const int end : ends_) close(end);
  }

  void strike(int signal) const {
    const auto now = Clock::now().time_since_epoch().count();
    [[maybe_unused]] const ssize_t written = write(ends_[1], &now, sizeof(now));
    kill(getpid(), signal);
  }

  // Nothing if it has not happened.
  std::optional<Clock::time_point> time() const {
    pollfd query{ends_[0], POLLIN, 0};
    Clock::rep ticks = 0;
    if (poll(&query, 1, 0) != 1 || read(ends_[0], &ticks, sizeof(ticks)) < 0) return std::nullopt;
    return Clock::time_point(Clock::duration(ticks));
  }

 private:
  std::array<int, 2> ends_ = {};
};

// Sends the signal to its own process when the action begins, after it has noted the time.
class Saboteur final : public Observer {
 public:
  Saboteur(const Fault& fault, const FaultNote& note) : fault_(fault), note_(note) {}
  void step_begins(const Schedule& /*program*/) override { ++num_steps_; }
  void action_begins(const ActionEvent& event) override {
    if (event.rank == fault_.rank && event.step == fault_.step && !event.is_part) strike();
  }
  void rank_ends(int rank) override {
    if (rank == fault_.rank && fault_.step == Fault::kAfterTheList) strike();
  }

 private:
  static constexpr int kStep = 2;  // all are connected, and have worked together once

  void strike() const {
    if (num_steps_ == kStep) note_.strike(fault_.signal);
  }

  Fault fault_;
  const FaultNote& note_;
  int num_steps_ = 0;
};

// From now on this process has the name of a host of its own. It then shares neither memory with
// processes of other names, nor asks the kernel about them.
bool enter_host(int number) {
  const std::string name = fmt::format("host{}", number);
  return unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
}

// What is expected of those that have not come to harm.
struct Expectation {
  int rank = 0;  // that has
  std::string place;
  double bound_s = 0;
};

// Adds up what came of it.
void judge(const std::vector<RankEnd>& ends, const FaultNote& note, const Expectation& expected,
           Tally& tally) {
  ++tally.num_cases;
  const auto complain = [&](const std::string& problem) {
    tally.problems += fmt::format("rank {} {}: {}\n", expected.rank, expected.place, problem);
  };
  const std::optional<Clock::time_point> time_of_fault = note.time();
  if (!time_of_fault) {
    complain("the fault did not happen");
    for (const RankEnd& end : ends) complain("a rank said " + end.text);
    return;
  }
  if (ends[static_cast<std::size_t>(expected.rank)].signal != SIGKILL) complain("was not killed");
  const std::string name = fmt::format("rank {} (pid ", expected.rank);
  for (int rank = 0; rank < static_cast<int>(ends.size()); ++rank) {
    if (rank == expected.rank) continue;
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    ++tally.num_survivors;
    tally.text = end.text;
    if (!end.has_thrown || end.text.substr(0, 200).find(name) == std::string::npos) {
      complain(fmt::format("rank {} said \"{}\", signal {}", rank, end.text, end.signal));
      continue;
    }
    ++tally.num_named;
    const double seconds = std::chrono::duration<double>(end.time - *time_of_fault).count();
    tally.slowest = std::max(tally.slowest, seconds);
    if (seconds <= expected.bound_s) ++tally.num_in_time;
  }
}

void inject_one(const FaultyRun& run, const Fault& fault, Tally& tally) {
  const FaultNote note;
  const std::vector<RankEnd> ends = run_forked(
      run.num_ranks,
      [&](const WorldOptions& options) {
        World world(options);
        const auto group = std::make_shared<ProcessRanks>(
            world, ProcessRankOptions{.transport = run.transport,
                                      .make_backend = store_backend(),
                                      .replay_path = run.replay_path});
        return run.train({.group = group,
                          .num_steps = 3,  // a rank that is done with a step notices in the next
                          .deadline = run.deadline,
                          .observers = {std::make_shared<Saboteur>(fault, note)}});
      },
      {.meeting = run.meeting,
       .stopped_rank = fault.signal == SIGSTOP ? fault.rank : -1,
       .patience = std::chrono::seconds(30)});
  judge(
      ends, note,
      {.rank = fault.rank, .place = fmt::format("at step {}", fault.step), .bound_s = run.bound_s},
      tally);
}

const char* name_of(ConnectFault::Place place) {
  switch (place) {
    case ConnectFault::Place::BeforeWatch:
      return "before the watch";
    case ConnectFault::Place::InWatch:
      return "in the watch";
    default:
      return "in the transport";
  }
}

void inject_one(const ConnectRun& run, const ConnectFault& fault, Tally& tally) {
  using Place = ConnectFault::Place;
  constexpr int kRanks = 3;
  const FaultNote note;
  const auto strike_when_all_connect = [&](Store& store, const char* topic) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == fault.rank && fault.place == Place::BeforeWatch) continue;
      while (!store.find(fmt::format("monitor/world/0/{}/came/{}", topic, rank))) {
        std::this_thread::yield();
      }
    }
    std::this_thread::sleep_for(fault.moment);
    note.strike(fault.signal);
  };
  const auto strike_at = [&](World& world, Place place) {
    if (world.rank() != fault.rank || place != fault.place) return;
    if (place == Place::BeforeWatch) strike_when_all_connect(world.store(), "watch");
    std::thread([&, place, store = std::shared_ptr(world.store().connect_again())] {
      strike_when_all_connect(*store, place == Place::InWatch ? "watch" : "transport/0");
    }).detach();
  };
  const std::vector<RankEnd> ends = run_forked(
      kRanks,
      [&](const WorldOptions& options) {
        World world(options);
        strike_at(world, Place::BeforeWatch);
        strike_at(world, Place::InWatch);
        const auto group = std::make_shared<ProcessRanks>(
            world, ProcessRankOptions{.transport = TransportKind::Gloo, .deadline = run.deadline});
        strike_at(world, Place::InTransport);
        // If it comes later than it should, it happens in one of these steps.
        return train(mlp_model(), {"1F1B", kRanks, 2},
                     {.group = group, .num_steps = 100'000, .deadline = run.deadline});
      },
      {.meeting = Meeting::Port,
       .change =
           [&](WorldOptions& options) {
             options.timeout = run.deadline;
             if (run.is_on_hosts) enter_host(options.rank);
           },
       .stopped_rank = fault.signal == SIGSTOP ? fault.rank : -1,
       .patience = std::chrono::seconds(30)});
  judge(ends, note,
        {.rank = fault.rank,
         .place = fmt::format("{} after {} us", name_of(fault.place), fault.moment.count()),
         .bound_s = run.bound_s},
        tally);
}

std::string tally_text(const Tally& tally) {
  return nlohmann::json{tally.num_cases, tally.num_survivors, tally.num_named, tally.num_in_time,
                        tally.slowest,   tally.text,          tally.problems}
      .dump();
}

void add(const std::string& text, Tally& tally) {
  const auto json = nlohmann::json::parse(text);
  tally.num_cases += json[0].get<int>();
  tally.num_survivors += json[1].get<int>();
  tally.num_named += json[2].get<int>();
  tally.num_in_time += json[3].get<int>();
  tally.slowest = std::max(tally.slowest, json[4].get<double>());
  tally.text = json[5];
  tally.problems += json[6].get<std::string>();
}

// Runs `inject_one` for each fault, a few at a time.
template <typename Faults, typename InjectOne>
Tally inject_each(const Faults& faults, std::size_t at_a_time, const InjectOne& inject_one) {
  std::vector<std::function<std::string()>> shares;
  for (std::size_t first = 0; first < std::min(at_a_time, faults.size()); ++first) {
    shares.emplace_back([&, first] {
      Tally tally;
      for (std::size_t index = first; index < faults.size(); index += at_a_time) {
        inject_one(faults[index], tally);
      }
      return tally_text(tally);
    });
  }
  Tally tally;
  for (const std::string& text : run_apart(shares)) add(text, tally);
  return tally;
}

}  // namespace

Tally inject(const FaultyRun& run, const std::vector<Fault>& faults) {
  constexpr std::size_t kAtATime = 4;  // they wait for most of the time
  return inject_each(faults, kAtATime,
                     [&](const Fault& fault, Tally& tally) { inject_one(run, fault, tally); });
}

Tally inject_while_connecting(const ConnectRun& run, const std::vector<ConnectFault>& faults) {
  constexpr std::size_t kAtATime = 8;
  return inject_each(faults, kAtATime, [&](const ConnectFault& fault, Tally& tally) {
    inject_one(run, fault, tally);
  });
}

bool can_have_hosts() {
  return run_apart([] { return std::string(enter_host(0) ? "yes" : "no"); }) == "yes";
}

void expect_all_named(const char* what, const Tally& tally) {
  std::printf("%s: %d cases, %d of %d survivors named the rank, %d in time, slowest %.3f s\n", what,
              tally.num_cases, tally.num_named, tally.num_survivors, tally.num_in_time,
              tally.slowest);
  EXPECT_EQ(tally.problems, "");
  EXPECT_GT(tally.num_survivors, 0);
  EXPECT_EQ(tally.num_named, tally.num_survivors);
  EXPECT_EQ(tally.num_in_time, tally.num_survivors);
}

}  // namespace penstock
