#include "penstock/run/microbatch/microbatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(RequireMicrobatches, AcceptsMicrobatchesThatAreCalledAlike) {
  EXPECT_NO_THROW(require_microbatches(
      {{.args = {1, 2}, .kwargs = {{"mask", 3}}}, {.args = {"a", 2.0}, .kwargs = {{"mask", "b"}}}},
      2));
  EXPECT_NO_THROW(require_microbatches({{}}, 1));
}

TEST(RequireMicrobatches, RejectsAnotherCount) {
  EXPECT_THAT([] { require_microbatches({{}}, 4); },
              ThrowsMessage<ArgumentError>(StrEq("found 1 microbatch, expected 4")));
  EXPECT_THAT(
      [] {
        require_microbatches({{}, {}, {}}, 2);
      },
      ThrowsMessage<ArgumentError>(StrEq("found 3 microbatches, expected 2")));
  EXPECT_THAT([] { require_microbatches({}, 0); },
              ThrowsMessage<ArgumentError>(StrEq("cannot run 0 microbatches; use at least 1")));
}

TEST(RequireMicrobatches, RejectsAnotherNumberOfArguments) {
  EXPECT_THAT(
      [] {
        require_microbatches({{.args = {1, 2}}, {.args = {1, 2}}, {.args = {1}}}, 3);
      },
      ThrowsMessage<ArgumentError>(StrEq("microbatch 2 has 1 positional argument, "
                                         "microbatch 0 has 2; all must be called alike")));
}

TEST(RequireMicrobatches, RejectsOtherKeywords) {
  EXPECT_THAT(
      [] {
        require_microbatches({{.kwargs = {{"mask", 1}}}, {}}, 2);
      },
      ThrowsMessage<ArgumentError>(StrEq("microbatch 1 lacks keyword \"mask\", which "
                                         "microbatch 0 has; all must be called alike")));
  EXPECT_THAT(
      [] {
        require_microbatches({{}, {.kwargs = {{"mask", 1}}}}, 2);
      },
      ThrowsMessage<ArgumentError>(StrEq("microbatch 1 has keyword \"mask\", which "
                                         "microbatch 0 lacks; all must be called alike")));
}

}  // namespace
}  // namespace penstock
