#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include <gtest/gtest.h>

#include "penstock/plan/simulator/timeline.h"
#include "tests/plan/report/sample_entries.h"

namespace penstock {
namespace {

using testing::make_entry;
using testing::sample_entries;
using Ledger = std::array<Duration, kNumIdleCauses>;

Ledger sum(std::span<const Wait> waits) {
  Ledger ledger{};
  for (const Wait& wait : waits) {
    ledger[static_cast<std::size_t>(wait.cause)] += wait.computing;
    ledger[static_cast<std::size_t>(IdleCause::Transfer)] += wait.transfer;
    ledger[static_cast<std::size_t>(IdleCause::Overhead)] += wait.overhead;
  }
  return ledger;
}

Duration total(const Ledger& ledger) {
  return std::accumulate(ledger.begin(), ledger.end(), Duration::zero());
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
    explain_waits(entry.program, entry.timeline, [&](int rank, std::span<const Wait> waits) {
      const auto index = static_cast<std::size_t>(rank);
      ASSERT_EQ(waits.size(), entry.program.ranks[index].size());
      Duration last_free{};
      for (std::size_t step = 0; step < waits.size(); ++step) {
        const ActionKind kind = entry.program.ranks[index][step].kind;
        if (!is_compute(kind) && !is_send(kind)) continue;
        last_free = std::max(last_free, entry.timeline.times[index][step].end);
      }
      const Ledger expected = without_the_end(entry.timeline.ranks[index], last_free);
      EXPECT_EQ(total(sum(waits)), total(expected)) << entry.name << ", rank " << rank;
      if (entry.is_measured) return;  // after the last action there may be overhead, too
      EXPECT_EQ(sum(waits), expected) << entry.name << ", rank " << rank;
    });
  }
}

TEST(Waits, NameTheActionThatMadeTheValue) {
  const ReportEntry entry = make_entry("GPipe", {.num_ranks = 2, .num_microbatches = 1},
                                       CostModel::uniform({.hop = Duration(5)}));
  std::vector<Wait> waits;
  explain_waits(entry.program, entry.timeline, [&](int rank, std::span<const Wait> of_rank) {
    if (rank == 1) waits.assign(of_rank.begin(), of_rank.end());
  });
  std::size_t step = 0;
  while (entry.program.ranks[1][step].kind != ActionKind::Forward) ++step;
  EXPECT_EQ(to_string(action_at(entry.program, waits[step].source)), "0F0");
  EXPECT_EQ(waits[step].cause, IdleCause::WarmUp);
  EXPECT_EQ(waits[step].computing, Duration(1000));
  EXPECT_EQ(waits[step].transfer, Duration(5));
}

}  // namespace
}  // namespace penstock
