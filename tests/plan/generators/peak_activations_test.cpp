#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/prover/check.h"

namespace penstock::testing {
namespace {

std::vector<int> peaks(std::string_view name, const ScheduleShape& shape) {
  return check(make_schedule(name, shape)).peak_activations;
}

// Calls `test` for every shape of the range over which the formulas are known to hold.
template <typename Test>
void for_each_shape(int max_stages_per_rank, Test&& test) {
  for (int num_ranks = 1; num_ranks <= 7; ++num_ranks) {
    for (int stages_per_rank = 1; stages_per_rank <= max_stages_per_rank; ++stages_per_rank) {
      for (int num_microbatches = 1; num_microbatches <= 24; ++num_microbatches) {
        SCOPED_TRACE(std::to_string(num_ranks) + " ranks, " + std::to_string(stages_per_rank) +
                     " stages per rank, " + std::to_string(num_microbatches) + " microbatches");
        test(ScheduleShape{num_ranks, num_microbatches, stages_per_rank});
      }
    }
  }
}

// Key to the formulas below: p ranks, v stages per rank, n microbatches, r this rank.

TEST(PeakActivations, OfForwardOnlyAreOne) {
  for_each_shape(1, [](const ScheduleShape& shape) {
    EXPECT_EQ(peaks("ForwardOnly", shape),
              std::vector<int>(static_cast<std::size_t>(shape.num_ranks), 1));
  });
}

TEST(PeakActivations, OfGPipeAreAllMicrobatches) {
  for_each_shape(1, [](const ScheduleShape& shape) {
    for (const int peak : peaks("GPipe", shape)) EXPECT_EQ(peak, shape.num_microbatches);
  });
}

TEST(PeakActivations, Of1F1BShrinkDownTheRanks) {
  for_each_shape(1, [](const ScheduleShape& shape) {
    const std::vector<int> found = peaks("1F1B", shape);
    const int p = shape.num_ranks;
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(found[static_cast<std::size_t>(r)], std::min(shape.num_microbatches, p - r));
    }
  });
}

TEST(PeakActivations, OfLoopedBfsAreAllMicrobatchesOfAllStages) {
  for_each_shape(4, [](const ScheduleShape& shape) {
    for (const int peak : peaks("LoopedBFS", shape)) {
      EXPECT_EQ(peak, shape.num_microbatches * shape.stages_per_rank);
    }
  });
}

// The formulas of the interleaved pair are about equal rounds of m = n / R microbatches.
bool has_equal_rounds(const ScheduleShape& shape) {
  return shape.num_microbatches % std::max(1, shape.num_microbatches / shape.num_ranks) == 0;
}

int round_size(const ScheduleShape& shape) {
  return shape.num_microbatches / std::max(1, shape.num_microbatches / shape.num_ranks);
}

TEST(PeakActivations, OfInterleaved1F1BFollowTheWarmUp) {
  for_each_shape(4, [](const ScheduleShape& shape) {
    if (!has_equal_rounds(shape)) return;
    const std::vector<int> found = peaks("Interleaved1F1B", shape);
    const int p = shape.num_ranks;
    const int v = shape.stages_per_rank;
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(
          found[static_cast<std::size_t>(r)],
          std::min(shape.num_microbatches * v, (v - 1) * round_size(shape) + 2 * (p - 1 - r) + 1));
    }
  });
}

TEST(PeakActivations, OfInterleavedZeroBubbleAreEqualOnAllRanks) {
  for_each_shape(4, [](const ScheduleShape& shape) {
    if (!has_equal_rounds(shape)) return;
    const int v = shape.stages_per_rank;
    for (const int peak : peaks("InterleavedZeroBubble", shape)) {
      EXPECT_EQ(peak, std::min(shape.num_microbatches * v,
                               (v - 1) * round_size(shape) + shape.num_ranks));
    }
  });
}

TEST(PeakActivations, OfZbvAreThoseOf1F1BInStagesOfHalfTheSize) {
  for_each_shape(1, [](ScheduleShape shape) {
    shape.stages_per_rank = 2;
    const int p = shape.num_ranks;
    const int n = shape.num_microbatches;
    for (const int peak : peaks("ZBVZeroBubble", shape)) {
      EXPECT_LE(peak, std::min(2 * n, 2 * p));
      if (n >= 2 * p - 1) {
        EXPECT_EQ(peak, 2 * p);
      }
    }
  });
}

TEST(PeakActivations, OfDualPipeVAreOneMoreThanTheStages) {
  for_each_shape(1, [](ScheduleShape shape) {
    shape.stages_per_rank = 2;
    if (shape.num_microbatches < shape.num_stages()) return;
    for (const int peak : peaks("DualPipeV", shape)) EXPECT_EQ(peak, shape.num_stages() + 1);
  });
}

}  // namespace
}  // namespace penstock::testing
