#include "tests/run/processes/faults.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "penstock/run/processes/process_ranks.h"
#include "tests/run/processes/forked_ranks.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Sends the signal to its own process when the action begins, after it has noted the time.
class Saboteur final : public Observer {
 public:
  Saboteur(const Fault& fault, int note) : fault_(fault), note_(note) {}
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
    if (num_steps_ != kStep) return;
    const auto now = Clock::now().time_since_epoch().count();
    [[maybe_unused]] const ssize_t written = write(note_, &now, sizeof(now));
    kill(getpid(), fault_.signal);
  }

  Fault fault_;
  int note_;
  int num_steps_ = 0;
};

// Trains once and adds up what came of it.
void inject_one(const FaultyRun& run, const Fault& fault, Tally& tally) {
  ++tally.num_cases;
  const auto complain = [&](const std::string& problem) {
    tally.problems += fmt::format("rank {} at step {}: {}\n", fault.rank, fault.step, problem);
  };
  std::array<int, 2> note = {};
  if (pipe(note.data()) != 0) throw std::runtime_error("pipe");
  const std::vector<RankEnd> ends = run_forked(
      run.num_ranks,
      [&](const WorldOptions& options) {
        World world(options);
        const auto group = std::make_shared<ProcessRanks>(
            world, ProcessRankOptions{.transport = run.transport, .replay_path = run.replay_path});
        return run.train({.group = group,
                          .num_steps = 3,  // a rank that is done with a step notices in the next
                          .deadline = run.deadline,
                          .observers = {std::make_shared<Saboteur>(fault, note[1])}});
      },
      // Over a port, so that the store dies with rank 0.
      {.meeting = Meeting::Port,
       .stopped_rank = fault.signal == SIGSTOP ? fault.rank : -1,
       .patience = std::chrono::seconds(30)});
  close(note[1]);
  Clock::rep ticks = 0;
  const bool has_happened = read(note[0], &ticks, sizeof(ticks)) == ssize_t{sizeof(ticks)};
  close(note[0]);
  if (!has_happened) {
    complain("the fault did not happen");
    return;
  }
  const Clock::time_point time_of_fault{Clock::duration(ticks)};
  if (ends[static_cast<std::size_t>(fault.rank)].signal != SIGKILL) complain("it was not killed");
  const std::string name = fmt::format("rank {} (pid ", fault.rank);
  for (int rank = 0; rank < run.num_ranks; ++rank) {
    if (rank == fault.rank) continue;
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    ++tally.num_survivors;
    tally.text = end.text;
    if (!end.has_thrown || end.text.substr(0, 200).find(name) == std::string::npos) {
      complain(fmt::format("rank {} said \"{}\", signal {}", rank, end.text, end.signal));
      continue;
    }
    ++tally.num_named;
    const double seconds = std::chrono::duration<double>(end.time - time_of_fault).count();
    tally.slowest = std::max(tally.slowest, seconds);
    if (seconds <= run.bound_s) ++tally.num_in_time;
  }
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

}  // namespace

Tally inject(const FaultyRun& run, const std::vector<Fault>& faults) {
  constexpr std::size_t kAtATime = 4;  // they wait for most of the time
  std::vector<std::function<std::string()>> shares;
  for (std::size_t first = 0; first < std::min(kAtATime, faults.size()); ++first) {
    shares.emplace_back([&, first] {
      Tally tally;
      for (std::size_t index = first; index < faults.size(); index += kAtATime) {
        inject_one(run, faults[index], tally);
      }
      return tally_text(tally);
    });
  }
  Tally tally;
  for (const std::string& text : run_apart(shares)) add(text, tally);
  return tally;
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
