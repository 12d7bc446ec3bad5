#include <string>

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/plan/schedule/json.h"
#include "tests/support/shapes.h"

namespace penstock::testing {
namespace {

// What holds for every schedule in every shape of a grid.
class EverySchedule : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Property>
  void for_each_shape(Property&& property) {
    const ScheduleFamily& family = schedule_family(GetParam());
    for (const ScheduleShape& shape :
         shapes_of(family, {.num_ranks = 9, .stages_per_rank = 4, .num_microbatches = 24})) {
      const Schedule order = family.make(shape);
      property(order, extent_of_shape(family, shape));
      ASSERT_FALSE(HasFailure()) << describe(family, shape);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Plan, EverySchedule, ::testing::ValuesIn(family_names()),
                         [](const auto& family) { return test_name(family.param); });

TEST_P(EverySchedule, IsProvedValid) {
  for_each_shape([](const Schedule& order, const Extent& extent) {
    EXPECT_NO_THROW(require_valid(order, {.extent = extent}));
    EXPECT_FALSE(is_lowered(order));
  });
}

TEST_P(EverySchedule, LowersToAValidProgramWithTheSameComputeOrder) {
  for_each_shape([](const Schedule& order, const Extent& extent) {
    const Schedule program = lower(order);
    EXPECT_NO_THROW(require_valid(program, {.extent = extent}));
    EXPECT_TRUE(is_lowered(program));
    EXPECT_TRUE(compute_actions(program) == compute_actions(order));
    EXPECT_TRUE(have_same_compute_order(program, order));
  });
}

TEST_P(EverySchedule, IsReadBackAsItWasWritten) {
  for_each_shape([](const Schedule& order, const Extent&) {
    EXPECT_TRUE(read_csv(write_csv(order), "order.csv") == order);
    EXPECT_TRUE(read_csv(write_csv(order, LineEnd::CrLf), "order.csv") == order);
    EXPECT_TRUE(read_json(write_json(order), "order.json") == order);
  });
}

TEST_P(EverySchedule, IsReadBackAsItWasLowered) {
  for_each_shape([](const Schedule& order, const Extent&) {
    const Schedule program = lower(order);
    EXPECT_TRUE(read_csv(write_csv(program), "program.csv") == program);
    EXPECT_TRUE(read_json(write_json(program), "program.json") == program);
  });
}

}  // namespace
}  // namespace penstock::testing
