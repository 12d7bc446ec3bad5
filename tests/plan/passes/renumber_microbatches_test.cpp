#include "penstock/plan/passes/renumber_microbatches.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "tests/support/shapes.h"
#include "tests/support/unit_time.h"

namespace penstock::testing {
namespace {

std::string renumbered(const std::string& csv) {
  return write_csv(renumber_microbatches(read_csv(csv, "test.csv")));
}

// Whether every stage makes its weight gradients in ascending order.
bool adds_in_order(const Schedule& schedule) {
  std::vector<int> last(static_cast<std::size_t>(extent_of(schedule).num_stages), Action::kNone);
  bool is_ascending = true;
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      for_each_part(action, [&](const Action& part) {
        if (!makes_weight_gradient(part.kind)) return;
        int& before = last[static_cast<std::size_t>(part.stage)];
        is_ascending = is_ascending && part.microbatch > before;
        before = part.microbatch;
      });
    }
  }
  return is_ascending;
}

TEST(RenumberMicrobatches, PutsWeightGradientsInAscendingOrder) {
  EXPECT_EQ(renumbered("0F0,0F1,0F2,0B2,0B1,0B0\n"), "0F2,0F1,0F0,0B0,0B1,0B2\n");
  EXPECT_EQ(renumbered("0F0,0F1,,0I0,0I1,0W1,0W0\n1F0,1I0,1F1,1I1,1W1,1W0\n"),
            "0F1,0F0,,0I1,0I0,0W0,0W1\n1F1,1I1,1F0,1I0,1W0,1W1\n");
  EXPECT_EQ(renumbered("0F0,0F1,0B1,(0F2;0B0)OVERLAP_F_B,0B2\n"),
            "0F1,0F0,0B0,(0F2;0B1)OVERLAP_F_B,0B2\n");
}

TEST(RenumberMicrobatches, TakesSendsAndReceivesAlong) {
  const Schedule order = read_csv("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", "test.csv");
  EXPECT_EQ(write_csv(renumber_microbatches(lower(order))),
            write_csv(lower(renumber_microbatches(order))));
}

TEST(RenumberMicrobatches, LeavesOrdersThatNoNumberingPutsRight) {
  for (const char* csv : {"0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n", "0F0,0F1\n", "0F0,0F1,0B1\n",
                          "0F0,0F1,0B1,0B1\n", "0F0,0F1,0B0,0B1\n"}) {
    EXPECT_EQ(renumbered(csv), csv);
  }
  EXPECT_EQ(renumber_microbatches(Schedule{}), Schedule{});
}

TEST(RenumberMicrobatches, MakesEverySchedulesGradientsAscend) {
  for (const ScheduleFamily& family : schedule_families()) {
    if (family.name == "ForwardOnly") continue;
    for (const ScheduleShape& shape :
         shapes_of(family, {.num_ranks = 5, .stages_per_rank = 3, .num_microbatches = 10})) {
      SCOPED_TRACE(describe(family, shape));
      const Schedule order = family.make(shape);
      const Schedule result = renumber_microbatches(order);
      EXPECT_TRUE(adds_in_order(result));
      EXPECT_NO_THROW(require_valid(result, {.extent = extent_of_shape(family, shape)}));
      EXPECT_EQ(run_in_unit_time(result).makespan, run_in_unit_time(order).makespan);
      EXPECT_EQ(result == order, family.name != "LoopedBFS" || shape.num_microbatches == 1);
      ASSERT_FALSE(HasFailure());
    }
  }
}

}  // namespace
}  // namespace penstock::testing
