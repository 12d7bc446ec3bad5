#include <algorithm>

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/keep_forwards.h"
#include "penstock/plan/passes/lower.h"

namespace penstock::testing {
namespace {

// torch.distributed.pipelining evaluates by walking the order of training: it gathers parameters
// for backwards that it then leaves out, and reduces gradients that nobody has computed.
TEST(EvalWithoutBackward, GathersEachStageOnceAndReducesNothing) {
  const LowerOptions sharded{.sharding = true, .max_active_stages = 1};
  const Schedule training =
      lower(make_schedule("LoopedBFS", {.num_ranks = 2, .num_microbatches = 4}), sharded);
  const Schedule inference = lower(keep_forwards(training), sharded);
  const auto count = [](const Schedule& program, ActionKind kind) {
    std::ptrdiff_t sum = 0;
    for (const auto& actions : program.ranks) {
      sum += std::count_if(actions.begin(), actions.end(),
                           [kind](const Action& action) { return action.kind == kind; });
    }
    return sum;
  };
  const int num_stages = extent_of(training).num_stages;
  EXPECT_GT(count(training, ActionKind::Unshard), num_stages);
  EXPECT_EQ(count(training, ActionKind::ReduceGrad), num_stages);
  EXPECT_EQ(count(inference, ActionKind::Unshard), num_stages);
  EXPECT_EQ(count(inference, ActionKind::ReduceGrad), 0);
}

}  // namespace
}  // namespace penstock::testing
