#include "penstock/run/world/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

TEST(Mesh, PutsEachRankInAPipelineAndADataGroup) {
  const Mesh mesh(6, {.pipeline = 3, .data = 2});
  EXPECT_THAT(mesh.pipeline_of(0).ranks, ElementsAre(0, 2, 4));
  EXPECT_THAT(mesh.pipeline_of(5).ranks, ElementsAre(1, 3, 5));
  EXPECT_THAT(mesh.data_group_of(0).ranks, ElementsAre(0, 1));
  EXPECT_THAT(mesh.data_group_of(5).ranks, ElementsAre(4, 5));
  EXPECT_EQ(mesh.pipeline_of(4).rank_of(4), 2);
  EXPECT_EQ(mesh.pipeline_of(4).rank_of(5), Group::kNotAMember);
  EXPECT_EQ(mesh.pipeline_of(0).name, mesh.pipeline_of(4).name);
  EXPECT_NE(mesh.pipeline_of(0).name, mesh.pipeline_of(1).name);
  EXPECT_NE(mesh.pipeline_of(0).name, mesh.data_group_of(0).name);
}

TEST(Mesh, RefusesShapesThatDoNotFit) {
  try {
    const Mesh mesh(6, {.pipeline = 4, .data = 2});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "a mesh of 4 pipeline ranks x 2 pipelines needs 8 ranks, but there are 6");
  }
}

}  // namespace
}  // namespace penstock
