#include "penstock/run/microbatch/chunk_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

c10::IValue first_of(const c10::IValue& left, const c10::IValue& /*right*/) {
  return left;
}

TEST(ChunkSpec, IsEqualWhenItSaysTheSame) {
  EXPECT_EQ(ChunkSpec::split(1), ChunkSpec::split(1));
  EXPECT_NE(ChunkSpec::split(1), ChunkSpec::split(-1));
  EXPECT_EQ(ChunkSpec::replicate(), ChunkSpec::replicate());
  EXPECT_NE(ChunkSpec::split(0), ChunkSpec::replicate());
  EXPECT_EQ(ChunkSpec::sequence({ChunkSpec::split(0), ChunkSpec::replicate()}),
            ChunkSpec::sequence({ChunkSpec::split(0), ChunkSpec::replicate()}));
  EXPECT_NE(ChunkSpec::sequence({ChunkSpec::split(0)}), ChunkSpec::sequence({ChunkSpec::split(1)}));
  EXPECT_NE(ChunkSpec::sequence({}), ChunkSpec::dict({}));
}

TEST(ChunkSpec, DictIsEqualInAnyOrderOfKeys) {
  const ChunkSpec split = ChunkSpec::split(0);
  const ChunkSpec replicate = ChunkSpec::replicate();
  EXPECT_EQ(ChunkSpec::dict({{"a", split}, {"b", replicate}}),
            ChunkSpec::dict({{"b", replicate}, {"a", split}}));
  EXPECT_NE(ChunkSpec::dict({{"a", split}, {"b", replicate}}),
            ChunkSpec::dict({{"a", replicate}, {"b", split}}));
  EXPECT_NE(ChunkSpec::dict({{"a", split}}), ChunkSpec::dict({{"b", split}}));
}

TEST(ChunkSpec, ReducerIsEqualToItsCopiesOnly) {
  const ChunkSpec reduce = ChunkSpec::reduce(0, first_of);
  const ChunkSpec copy = reduce;
  EXPECT_EQ(reduce, copy);
  EXPECT_NE(reduce, ChunkSpec::reduce(0, first_of));
  EXPECT_EQ(ChunkSpec::sum(), ChunkSpec::sum());
  EXPECT_NE(ChunkSpec::sum(), reduce);
}

TEST(ChunkSpec, SplitsAlongDimensionZeroUnlessTold) {
  EXPECT_EQ(ChunkSpec::split(), ChunkSpec::split(0));
}

TEST(ChunkSpec, IsMadeFromDimensions) {
  EXPECT_EQ(ChunkSpec::from_dims({0, -1}),
            ChunkSpec::sequence({ChunkSpec::split(0), ChunkSpec::split(-1)}));
  EXPECT_EQ(ChunkSpec::from_named_dims({{"x", 0}, {"mask", 1}}),
            ChunkSpec::dict({{"mask", ChunkSpec::split(1)}, {"x", ChunkSpec::split(0)}}));
}

TEST(ChunkSpec, IsWrittenOnOneLine) {
  const ChunkSpec spec = ChunkSpec::sequence(
      {ChunkSpec::split(0),
       ChunkSpec::dict({{"x", ChunkSpec::split(-1)}, {"mask", ChunkSpec::replicate()}}),
       ChunkSpec::sum(), ChunkSpec::reduce(0, first_of)});
  EXPECT_EQ(to_string(spec), R"([split(0), {"mask": replicate, "x": split(-1)}, sum, reduce])");
  EXPECT_EQ(to_string(ChunkSpec::sequence({})), "[]");
  EXPECT_EQ(to_string(ChunkSpec::dict({})), "{}");
}

TEST(ChunkSpec, RejectsAKeyNamedTwice) {
  EXPECT_THAT(
      [] {
        ChunkSpec::dict(
            {{"x", ChunkSpec::split(0)}, {"y", ChunkSpec::split(0)}, {"x", ChunkSpec::split(1)}});
      },
      ThrowsMessage<ArgumentError>(StrEq(R"(the spec names key "x" twice)")));
}

TEST(ChunkSpec, RejectsAReducerWithoutAFunction) {
  EXPECT_THAT(
      [] { ChunkSpec::reduce(0, nullptr); },
      ThrowsMessage<ArgumentError>(StrEq("a reducer needs a function that combines two values")));
}

}  // namespace
}  // namespace penstock
