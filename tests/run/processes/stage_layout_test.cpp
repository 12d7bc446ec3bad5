#include "penstock/run/stage/stage_layout.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/stage/make_stage_module.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"

namespace penstock {
namespace {

// In processes of their own, because they compute.
TEST(StageLayout, IsThatOfNamesTypesAndShapes) {
  const std::string found = run_apart([] {
    const auto layout = [](const torch::nn::Linear& linear) {
      return layout_of(*make_stage_module(linear));
    };
    const torch::nn::Linear linear(4, 5);
    torch::nn::Linear half(4, 5);
    half->to(torch::kHalf);
    torch::nn::Linear named(4, 5);
    named->register_parameter("scale", torch::zeros({1}));
    std::set<std::uint64_t> different = {layout(linear), layout(torch::nn::Linear(5, 4)),
                                         layout(half), layout(named), std::uint64_t{0}};
    different.insert(layout(torch::nn::Linear(4, 5)));
    return std::to_string(different.size());
  });
  EXPECT_EQ(found, "5");
}

TEST(StageLayout, IsKnownOfAllStagesOfACapturedModelAndOfOwnOnesElse) {
  const std::string found = run_apart([] {
    const auto count_known = [](const std::shared_ptr<PipelineStage>& stage) {
      const std::vector<std::uint64_t> layouts = known_layouts(std::vector{stage});
      return std::to_string(std::count_if(layouts.begin(), layouts.end(),
                                          [](std::uint64_t layout) { return layout != 0; })) +
             " of " + std::to_string(layouts.size());
    };
    const auto alone = std::make_shared<PipelineStage>(make_stage_module(torch::nn::Linear(8, 8)),
                                                       StagePosition{.index = 1, .num_stages = 3});
    return count_known(captured_stage(8, 1)) + ", " + count_known(alone);
  });
  EXPECT_EQ(found, "3 of 3, 1 of 3");
}

}  // namespace
}  // namespace penstock
