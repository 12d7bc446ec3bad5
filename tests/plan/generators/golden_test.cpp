#include "tests/support/golden.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/add_communication.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/passes/merge_backwards.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/schedule/csv.h"
#include "tests/support/step_simulator.h"

namespace penstock::testing {
namespace {

// Equality with torch.distributed.pipelining, configuration by configuration. The texts are in
// tests/golden; where only the hash is stored, `penstock generate` shows what we make of it.
class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<GoldenRow> rows() {
    static const std::vector<GoldenRow> all = read_golden_index();
    std::vector<GoldenRow> selected;
    std::copy_if(all.begin(), all.end(), std::back_inserter(selected),
                 [](const GoldenRow& row) { return row.name == GetParam(); });
    return selected;
  }
};

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Golden,
                         ::testing::Values("GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B",
                                           "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"),
                         name_of);

TEST_P(Golden, TextsAreEqual) {
  int num_texts = 0;
  for (const GoldenRow& row : rows()) {
    if (!has_golden_texts(row)) continue;
    SCOPED_TRACE(golden_name(row));
    const Schedule order = make_schedule(row.name, row.shape);
    EXPECT_EQ(write_csv(order), read_golden_text(row, "compute"));
    EXPECT_EQ(write_csv(lower(order)), read_golden_text(row, "lowered"));
    EXPECT_EQ(write_csv(merge_backwards(order)), read_golden_text(row, "merged"));
    ++num_texts;
  }
  EXPECT_GE(num_texts, 4);
}

TEST_P(Golden, HashesAreEqual) {
  ASSERT_GE(rows().size(), 40U);
  for (const GoldenRow& row : rows()) {
    if (row.is_refused) continue;
    SCOPED_TRACE(golden_name(row));
    const Schedule order = make_schedule(row.name, row.shape);
    EXPECT_EQ(sha256(write_csv(order)), row.compute_sha256);
    EXPECT_EQ(sha256(write_csv(lower(order))), row.lowered_sha256);
    EXPECT_EQ(sha256(write_csv(merge_backwards(order))), row.merged_sha256);
  }
}

TEST_P(Golden, ConfigurationsTheReferenceRefusesAreValid) {
  for (const GoldenRow& row : rows()) {
    if (!row.is_refused) continue;
    SCOPED_TRACE(golden_name(row));
    const Schedule order = make_schedule(row.name, row.shape);
    const CheckOptions options = {.extent =
                                      Extent{row.shape.num_stages(), row.shape.num_microbatches}};
    EXPECT_NO_THROW(require_valid(order, options));
    EXPECT_NO_THROW(require_valid(lower(order), options));
  }
}

TEST_P(Golden, StepCountsAreEqual) {
  for (const GoldenRow& row : rows()) {
    if (!row.simulated_steps) continue;
    SCOPED_TRACE(golden_name(row));
    const Schedule order = make_schedule(row.name, row.shape);
    EXPECT_EQ(simulated_steps(add_communication(compute_actions(order))), row.simulated_steps);
  }
}

TEST(GoldenIndex, HasEverySchedule) {
  const std::vector<GoldenRow> rows = read_golden_index();
  EXPECT_EQ(rows.size(), 520U);
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.is_refused; }),
            37);
}

TEST(Sha256, IsTheStandardOne) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace penstock::testing
