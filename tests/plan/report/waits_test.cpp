#include "penstock/plan/report/internal/waits.h"

#include <array>

#include <gtest/gtest.h>

#include "tests/plan/report/sample_entries.h"

namespace penstock {
namespace {

using testing::make_entry;
using testing::sample_entries;
using Ledger = std::array<Duration, kNumIdleCauses>;

Ledger sum(const std::vector<Wait>& waits) {
  Ledger ledger{};
  for (const Wait& wait : waits) {
    ledger[static_cast<std::size_t>(wait.cause)] += wait.computed - wait.begin;
    ledger[static_cast<std::size_t>(IdleCause::Transfer)] += wait.end - wait.computed;
  }
  return ledger;
}

// What no action waits for: the end of the step, and reductions that outlast the computation.
Ledger without_the_end(const RankUsage& usage, Duration last_free) {
  Ledger ledger = usage.idle;
  ledger[static_cast<std::size_t>(IdleCause::EndOfStep)] = Duration::zero();
  ledger[static_cast<std::size_t>(IdleCause::Transfer)] -= usage.last_end - last_free;
  return ledger;
}

TEST(Waits, AddUpToTheLedger) {
  for (const ReportEntry& entry : sample_entries()) {
    const WaitExplainer explainer(entry.program, entry.simulation);
    for (int rank = 0; rank < entry.program.num_ranks(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      const std::vector<Wait> waits = explainer.waits_of(rank);
      Duration last_free{};
      for (std::size_t step = 0; step < waits.size(); ++step) {
        const ActionKind kind = entry.program.ranks[index][step].kind;
        if (!is_compute(kind) && !is_send(kind)) continue;
        last_free = std::max(last_free, entry.simulation.times[index][step].end);
      }
      EXPECT_EQ(sum(waits), without_the_end(entry.simulation.ranks[index], last_free))
          << entry.name << ", rank " << rank;
    }
  }
}

TEST(Waits, NameTheActionThatMadeTheValue) {
  const ReportEntry entry = make_entry("GPipe", {.num_ranks = 2, .num_microbatches = 1},
                                       CostModel::uniform({.hop = Duration(5)}));
  const std::vector<Wait> waits = WaitExplainer(entry.program, entry.simulation).waits_of(1);
  std::size_t step = 0;
  while (entry.program.ranks[1][step].kind != ActionKind::Forward) ++step;
  EXPECT_EQ(to_string(action_at(entry.program, waits[step].source)), "0F0");
  EXPECT_EQ(waits[step].cause, IdleCause::WarmUp);
  EXPECT_EQ(waits[step].computed - waits[step].begin, Duration(1000));
  EXPECT_EQ(waits[step].end - waits[step].computed, Duration(5));
}

}  // namespace
}  // namespace penstock
