// The figures a schedule is known for, with F, I and W of equal length and hops that take no time.
#include <algorithm>
#include <ostream>
#include <string_view>

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {
namespace {

struct Case {
  std::string_view schedule;
  int stages_per_rank;
  double makespan_percent;
  double span_percent;
  double peak_activations;
  bool split_overlaps = false;

  friend std::ostream& operator<<(std::ostream& out, const Case& value) {
    return out << value.schedule << " v=" << value.stages_per_rank;
  }
};

class EightRanks32Microbatches : public ::testing::TestWithParam<Case> {};

double percent(double share) {
  return static_cast<double>(static_cast<int>(share * 10000 + 0.5)) / 100;
}

double worst_peak(const Timeline& timeline) {
  double worst = 0;
  for (const RankUsage& usage : timeline.ranks) worst = std::max(worst, usage.peak_activations);
  return worst;
}

TEST_P(EightRanks32Microbatches, HasItsBubblesAndItsPeak) {
  const Case& expected = GetParam();
  const Schedule order = make_schedule(
      expected.schedule,
      {.num_ranks = 8, .num_microbatches = 32, .stages_per_rank = expected.stages_per_rank});
  const Timeline timeline =
      simulate(lower(order, {.split_overlaps = expected.split_overlaps}), CostModel::uniform());
  EXPECT_DOUBLE_EQ(percent(timeline.makespan_bubble), expected.makespan_percent);
  EXPECT_DOUBLE_EQ(percent(timeline.span_bubble), expected.span_percent);
  EXPECT_DOUBLE_EQ(worst_peak(timeline), expected.peak_activations);
}

INSTANTIATE_TEST_SUITE_P(
    Simulate, EightRanks32Microbatches,
    ::testing::Values(Case{"GPipe", 1, 17.95, 17.95, 32}, Case{"1F1B", 1, 17.95, 17.95, 8},
                      Case{"Interleaved1F1B", 2, 9.86, 9.86, 11.5},
                      Case{"Interleaved1F1B", 4, 5.19, 5.19, 9.75},
                      Case{"LoopedBFS", 2, 9.86, 9.86, 32}, Case{"ZB-H1", 1, 6.80, 6.80, 8},
                      Case{"ZB-H2", 1, 6.80, 0, 15},
                      Case{"InterleavedZeroBubble", 2, 3.52, 3.52, 8},
                      Case{"ZBVZeroBubble", 2, 3.52, 0, 8}, Case{"DualPipeV", 2, 6.80, 6.80, 8.5},
                      Case{"DualPipeV", 2, 3.52, 3.52, 8.5, true}, Case{"V-Half", 2, 8.13, 8.13, 5},
                      Case{"V-Min", 2, 11.11, 11.11, 4}));

// Idle slots over all slots, in units of F: a closed form per family. p: ranks, v: stages per
// rank, m: microbatches.
struct ClosedForm {
  std::string_view schedule;
  int stages_per_rank;
  int units_per_microbatch;  // of one stage, in the unit in which the bubble is p - 1
};

class ClosedForms : public ::testing::TestWithParam<ClosedForm> {};

TEST_P(ClosedForms, HoldOverAGrid) {
  const auto [schedule, stages_per_rank, units] = GetParam();
  for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
    // The forms hold for whole rounds of at least two per rank.
    for (int rounds = 2; rounds <= 5; ++rounds) {
      const int num_microbatches = rounds * num_ranks;
      const Schedule order = make_schedule(schedule, {.num_ranks = num_ranks,
                                                      .num_microbatches = num_microbatches,
                                                      .stages_per_rank = stages_per_rank});
      const Timeline timeline = simulate(lower(order), CostModel::uniform());
      const double work = static_cast<double>(units) * stages_per_rank * num_microbatches;
      const double bubble = (num_ranks - 1) / (work + num_ranks - 1);
      EXPECT_NEAR(timeline.makespan_bubble, bubble, 1e-12)
          << schedule << " on " << num_ranks << " ranks, " << num_microbatches << " microbatches";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simulate, ClosedForms,
                         ::testing::Values(ClosedForm{"1F1B", 1, 1}, ClosedForm{"GPipe", 1, 1},
                                           ClosedForm{"Interleaved1F1B", 2, 1},
                                           ClosedForm{"Interleaved1F1B", 3, 1},
                                           ClosedForm{"ZB-H1", 1, 3},
                                           ClosedForm{"InterleavedZeroBubble", 2, 3},
                                           ClosedForm{"ZBVZeroBubble", 2, 3}));

}  // namespace
}  // namespace penstock
