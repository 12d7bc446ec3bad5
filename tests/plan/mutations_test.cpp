#include "tests/support/mutations.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "tests/support/listing.h"
#include "tests/support/shapes.h"

namespace penstock::testing {
namespace {

// A broken program must be refused. Nothing is excluded: with sharding (the default) every action
// of a lowered schedule is necessary. Without it, the REDUCE_GRAD of a single stage on a single
// rank could go unnoticed, because what is left is a compute order.
bool is_refused(const Schedule& broken, const Extent& extent) {
  return !check(broken, {.extent = extent, .max_violations = 1}).is_valid();
}

class EveryProgram : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Test>
  void for_each_program(const ShapeLimits& limits, Test&& test) {
    const ScheduleFamily& family = schedule_family(GetParam());
    for (const ScheduleShape& shape : shapes_of(family, limits)) {
      const Schedule program = lower(family.make(shape));
      ASSERT_FALSE(is_refused(program, extent_of_shape(family, shape)));
      test(program, extent_of_shape(family, shape));
      ASSERT_FALSE(HasFailure()) << describe(family, shape) << "\n" << write_listing(program);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Plan, EveryProgram, ::testing::ValuesIn(family_names()),
                         [](const auto& family) { return test_name(family.param); });

TEST_P(EveryProgram, NeedsAllItsActions) {
  const ShapeLimits limits = {.num_ranks = 4, .stages_per_rank = 2, .num_microbatches = 4};
  for_each_program(limits, [](const Schedule& program, const Extent& extent) {
    for (const Position position : all_positions(program)) {
      EXPECT_TRUE(is_refused(without_action(program, position), extent))
          << "without " << to_string(action_at(program, position));
    }
  });
}

TEST_P(EveryProgram, NeedsNoActionTwice) {
  const ShapeLimits limits = {.num_ranks = 2, .stages_per_rank = 2, .num_microbatches = 2};
  for_each_program(limits, [](const Schedule& program, const Extent& extent) {
    std::vector<Position> places = all_positions(program);
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      places.push_back({rank, static_cast<int>(program.actions_of(rank).size())});
    }
    for (const Position position : all_positions(program)) {
      const Action& action = action_at(program, position);
      for (const Position place : places) {
        EXPECT_TRUE(is_refused(with_action(program, place, action), extent))
            << "with another " << to_string(action) << " at step " << place.step << " of rank "
            << place.rank;
      }
    }
  });
}

TEST_P(EveryProgram, NeedsItsOrder) {
  const ShapeLimits limits = {.num_ranks = 3, .stages_per_rank = 2, .num_microbatches = 3};
  for_each_program(limits, [](const Schedule& program, const Extent& extent) {
    const std::vector<DependentPair> pairs = dependent_pairs(program);
    EXPECT_FALSE(pairs.empty());
    for (const DependentPair& pair : pairs) {
      EXPECT_TRUE(is_refused(with_exchanged(program, pair), extent))
          << "exchanged steps " << pair.earlier << " and " << pair.later << " of rank "
          << pair.rank;
    }
  });
}

// Larger shapes and all ways of lowering, at random.
struct RandomProgram {
  Schedule program;
  Extent extent;
};

RandomProgram random_program() {
  const auto families = schedule_families();
  const ScheduleFamily& family = families[*rc::gen::inRange<std::size_t>(0, families.size())];
  const std::vector<ScheduleShape> shapes =
      shapes_of(family, {.num_ranks = 6, .stages_per_rank = 3, .num_microbatches = 10});
  const ScheduleShape shape = shapes[*rc::gen::inRange<std::size_t>(0, shapes.size())];
  const LowerOptions options = {
      .backwards = *rc::gen::element(Backwards::AsGiven, Backwards::Merged, Backwards::Split),
      .max_active_stages = *rc::gen::inRange(1, 5)};
  RC_LOG() << describe(family, shape) << "\n";
  const RandomProgram random = {lower(family.make(shape), options), extent_of_shape(family, shape)};
  RC_ASSERT(!is_refused(random.program, random.extent));
  return random;
}

Position random_position(const Schedule& schedule) {
  return *rc::gen::elementOf(all_positions(schedule));
}

RC_GTEST_PROP(RandomProgramCheck, NoticesADroppedAction, ()) {
  const auto [program, extent] = random_program();
  const Position position = random_position(program);
  RC_LOG() << "without " << to_string(action_at(program, position)) << "\n";
  RC_ASSERT(is_refused(without_action(program, position), extent));
}

RC_GTEST_PROP(RandomProgramCheck, NoticesADuplicatedAction, ()) {
  const auto [program, extent] = random_program();
  const Action action = action_at(program, random_position(program));
  const Position place = random_position(program);
  RC_LOG() << "with another " << to_string(action) << " at step " << place.step << " of rank "
           << place.rank << "\n";
  RC_ASSERT(is_refused(with_action(program, place, action), extent));
}

RC_GTEST_PROP(RandomProgramCheck, NoticesAnExchangeOfDependentActions, ()) {
  const auto [program, extent] = random_program();
  const std::vector<DependentPair> pairs = dependent_pairs(program);
  const DependentPair pair = pairs[*rc::gen::inRange<std::size_t>(0, pairs.size())];
  RC_LOG() << "exchanged steps " << pair.earlier << " and " << pair.later << " of rank "
           << pair.rank << "\n";
  RC_ASSERT(is_refused(with_exchanged(program, pair), extent));
}

}  // namespace
}  // namespace penstock::testing
