#include "penstock/run/microbatch/split.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/run/microbatch/tree.h"
#include "tests/run/microbatch/trees.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

const ChunkSpec kReplicate = ChunkSpec::replicate();

// The extent along `dim` of every tensor.
std::vector<std::int64_t> extents(const std::vector<c10::IValue>& values, std::int64_t dim = 0) {
  std::vector<std::int64_t> result;
  for (const c10::IValue& value : values) result.push_back(value.toTensor().size(dim));
  return result;
}

std::vector<c10::IValue> argument_of(const std::vector<Microbatch>& microbatches,
                                     std::size_t index) {
  std::vector<c10::IValue> values;
  for (const Microbatch& microbatch : microbatches) values.push_back(microbatch.args.at(index));
  return values;
}

std::vector<c10::IValue> keyword_of(const std::vector<Microbatch>& microbatches,
                                    const std::string& name) {
  std::vector<c10::IValue> values;
  for (const Microbatch& microbatch : microbatches) values.push_back(microbatch.kwargs.at(name));
  return values;
}

// The message of the error that splitting throws.
std::string refusal(const Microbatch& batch, int num_microbatches,
                    const SplitOptions& options = {}) {
  try {
    split_microbatches(batch, num_microbatches, options);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

// Oracle 1 of the specification, first half.
TEST(SplitMicrobatches, SplitsEachTensorByItsOwnRows) {
  const c10::IValue a = torch::randn({128, 4});
  const c10::IValue b = torch::randn({256, 4});
  const c10::IValue c = torch::randn({512, 4});
  const auto microbatches =
      split_microbatches({.args = {a, b, c}, .kwargs = {{"a", a}, {"b", b}, {"c", c}}}, 2);
  ASSERT_EQ(microbatches.size(), 2U);
  EXPECT_THAT(extents(argument_of(microbatches, 0)), ElementsAre(64, 64));
  EXPECT_THAT(extents(argument_of(microbatches, 1)), ElementsAre(128, 128));
  EXPECT_THAT(extents(argument_of(microbatches, 2)), ElementsAre(256, 256));
  EXPECT_THAT(extents(keyword_of(microbatches, "a")), ElementsAre(64, 64));
  EXPECT_THAT(extents(keyword_of(microbatches, "b")), ElementsAre(128, 128));
  EXPECT_THAT(extents(keyword_of(microbatches, "c")), ElementsAre(256, 256));
  EXPECT_TRUE(torch::equal(microbatches[1].args[0].toTensor(), a.toTensor().slice(0, 64)));
}

TEST(SplitValue, GivesTheFirstMicrobatchesTheLeftOverRows) {
  EXPECT_THAT(extents(split_value(torch::zeros({5}), 3)), ElementsAre(2, 2, 1));
  EXPECT_THAT(extents(split_value(torch::zeros({7}), 4)), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(extents(split_value(torch::zeros({4}), 4)), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(extents(split_value(torch::zeros({4}), 1)), ElementsAre(4));
}

TEST(SplitRows, CountsAlongTheDimensionThatIsSplit) {
  const torch::Tensor tensor = torch::zeros({2, 3});
  EXPECT_EQ(split_rows(tensor), 2);
  EXPECT_EQ(split_rows(tensor, ChunkSpec::split(-1)), 3);
  EXPECT_EQ(split_rows(tensor, ChunkSpec::replicate()), std::nullopt);
  EXPECT_EQ(split_rows(c10::IValue()), std::nullopt);
  const c10::IValue pair = std::make_tuple(tensor, torch::zeros({4, 5}));
  EXPECT_EQ(split_rows(pair), 2);
  EXPECT_EQ(split_rows(pair, ChunkSpec::sequence({ChunkSpec::replicate(), ChunkSpec::split(1)})),
            5);
}

TEST(SplitMicrobatches, MakesFewerOnlyWhenAllowed) {
  const SplitOptions allow = {.allow_fewer = true};
  const auto two = split_microbatches({.args = {torch::zeros({2})}}, 4, allow);
  EXPECT_THAT(extents(argument_of(two, 0)), ElementsAre(1, 1));

  const auto by_keyword = split_microbatches(
      {.args = {torch::zeros({8})}, .kwargs = {{"mask", torch::zeros({2})}}}, 4, allow);
  EXPECT_THAT(extents(argument_of(by_keyword, 0)), ElementsAre(4, 4));
  EXPECT_THAT(extents(keyword_of(by_keyword, "mask")), ElementsAre(1, 1));

  const auto three = split_microbatches({.args = {torch::zeros({4}), torch::zeros({3})}}, 4, allow);
  EXPECT_THAT(extents(argument_of(three, 0)), ElementsAre(2, 1, 1));
  EXPECT_THAT(extents(argument_of(three, 1)), ElementsAre(1, 1, 1));
}

TEST(SplitMicrobatches, RejectsFewerRowsThanMicrobatches) {
  EXPECT_EQ(refusal({.args = {torch::zeros({3, 2})}}, 4),
            "cannot split a batch of 3 rows into 4 microbatches (argument 0, dimension 0); "
            "use at most 3");
  EXPECT_EQ(refusal({.args = {torch::zeros({3}), tuple_of({7, torch::zeros({1})})}}, 4),
            "cannot split a batch of 1 row into 4 microbatches (argument 1[1], dimension 0); "
            "use at most 1");
  EXPECT_EQ(refusal({.kwargs = {{"mask", torch::zeros({9, 2})}}}, 4,
                    {.kwargs = {{"mask", ChunkSpec::split(-1)}}}),
            "cannot split a batch of 2 rows into 4 microbatches (keyword \"mask\", dimension 1); "
            "use at most 2");
}

TEST(SplitMicrobatches, RejectsABatchWithoutRows) {
  const std::string expected =
      "cannot split a batch of 0 rows into 1 microbatch (argument 0, dimension 0); "
      "a microbatch needs at least 1 row";
  EXPECT_EQ(refusal({.args = {torch::zeros({0, 3})}}, 1), expected);
  EXPECT_EQ(refusal({.args = {torch::zeros({0, 3})}}, 1, {.allow_fewer = true}), expected);
}

TEST(SplitMicrobatches, RejectsFewerThanOneMicrobatch) {
  EXPECT_EQ(refusal({}, 0), "cannot split into 0 microbatches; use at least 1");
  EXPECT_EQ(refusal({.args = {torch::zeros({4})}}, -2),
            "cannot split into -2 microbatches; use at least 1");
  EXPECT_THAT([] { split_value(1, 0); }, ThrowsMessage<ArgumentError>(HasSubstr("at least 1")));
}

TEST(SplitValue, SharesTheStorageOfTheBatch) {
  at::Tensor batch = torch::zeros({4, 2});
  const auto parts = split_value(batch, 2);
  parts[1].toTensor().fill_(1);
  EXPECT_EQ(batch[3][1].item<float>(), 1);
  EXPECT_EQ(batch[1][1].item<float>(), 0);
}

TEST(SplitValue, SendsTheGradientToTheTensorOfTheBatch) {
  const at::Tensor batch = torch::ones({3}, torch::requires_grad());
  const auto parts = split_value(batch, 2);
  const at::Tensor& last = parts[1].toTensor();
  EXPECT_TRUE(last.requires_grad());
  EXPECT_FALSE(last.is_leaf());
  EXPECT_FALSE(last.retains_grad());
  (last * 5).sum().backward();
  EXPECT_TRUE(torch::equal(batch.grad(), torch::tensor({0.0F, 0.0F, 5.0F})));
}

TEST(SplitValue, ReplicatesWhatHasNoRows) {
  const at::Tensor scalar = torch::tensor(2.0F);
  const auto parts =
      split_value(tuple_of({torch::zeros({2}), scalar, 3, "text", c10::IValue(), at::Tensor()}), 2);
  for (const c10::IValue& part : parts) {
    EXPECT_EQ(part.toTupleRef().elements()[0].toTensor().size(0), 1);
    EXPECT_TRUE(child(part, 1).toTensor().is_same(scalar));
    EXPECT_EQ(child(part, 2).toInt(), 3);
    EXPECT_EQ(child(part, 3).toStringRef(), "text");
    EXPECT_TRUE(child(part, 4).isNone());
    EXPECT_FALSE(child(part, 5).toTensor().defined());
  }
}

TEST(SplitValue, ReplicatesTensorsOnRequest) {
  const at::Tensor table = torch::zeros({2});
  const auto parts = split_value(table, 3, kReplicate);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_TRUE(parts[2].toTensor().is_same(table));
}

TEST(SplitValue, KeepsKindsTypesAndNames) {
  const c10::IValue tree = tuple_of(
      {list_of(c10::TensorType::get(), {torch::zeros({4}), torch::zeros({6})}),
       dict_of({{"z", torch::zeros({4})}, {"a", torch::zeros({4, 2})}}, c10::TensorType::get()),
       pair_of(torch::zeros({2}), torch::zeros({2}))});
  const c10::IValue part = split_value(tree, 2)[1];
  EXPECT_EQ(describe(part),
            "([float tensor [2], float tensor [3]], "
            "{\"z\": float tensor [2], \"a\": float tensor [2, 2]}, "
            "(float tensor [1], float tensor [1]))");
  EXPECT_EQ(child(part, 0).toTensorVector().size(), 2U);
  EXPECT_EQ(child(part, 1).type()->annotation_str(), "Dict[str, Tensor]");
  EXPECT_EQ(tuple_name(child(part, 2)), "Pair");
}

TEST(SplitValue, TakesOneSpecForAWholeSubtree) {
  const c10::IValue tree = tuple_of({torch::zeros({1, 4}), dict_of({{"x", torch::zeros({1, 6})}}),
                                     3, c10::IValue(), at::Tensor()});
  const auto parts = split_value(tree, 2, ChunkSpec::split(1));
  EXPECT_EQ(describe(parts[0]),
            R"((float tensor [1, 2], {"x": float tensor [1, 3]}, 3, None, undefined tensor))");
  EXPECT_EQ(describe(split_value(tree, 2, kReplicate)[1]), describe(tree));
}

TEST(SplitValue, CountsNegativeDimensionsFromTheEnd) {
  EXPECT_THAT(extents(split_value(torch::zeros({1, 5, 3}), 2, ChunkSpec::split(-2)), 1),
              ElementsAre(3, 2));
}

TEST(SplitValue, RejectsADimensionThatATensorLacks) {
  EXPECT_EQ(refusal({.args = {torch::zeros({2, 3})}}, 2, {.args = {{ChunkSpec::split(2)}}}),
            "argument 0: cannot split float tensor [2, 3] along dimension 2; "
            "its dimensions are 0 to 1, or -2 to -1 from the end");
  EXPECT_THAT(refusal({.args = {torch::zeros({2, 3})}}, 2, {.args = {{ChunkSpec::split(-3)}}}),
              HasSubstr("along dimension -3; its dimensions are 0 to 1"));
  EXPECT_EQ(
      refusal({.args = {tuple_of({torch::tensor(1.0F)})}}, 2, {.args = {{ChunkSpec::split(0)}}}),
      "argument 0[0]: cannot split float tensor [] along dimension 0; "
      "it has no dimensions (use the spec replicate)");
}

TEST(SplitValue, RejectsToSplitWhatIsNoTensor) {
  EXPECT_THAT([] { split_value(3, 2, ChunkSpec::split(0), "target"); },
              ThrowsMessage<ArgumentError>(StrEq("target: cannot split 3 along dimension 0; "
                                                 "expected a tensor (or the spec replicate)")));
  EXPECT_THAT(refusal({.args = {at::Tensor()}}, 2, {.args = {{ChunkSpec::split(0)}}}),
              HasSubstr("cannot split undefined tensor along dimension 0; expected a tensor"));
}

TEST(SplitValue, RejectsAReducer) {
  EXPECT_THAT([] { split_value(torch::zeros({2}), 2, ChunkSpec::sum()); },
              ThrowsMessage<ArgumentError>(StrEq(
                  "value: the spec sum says how to merge; to split, use split or replicate")));
}

// B1: the reference pairs the specs of keywords by position, and so cuts the wrong tensor.
TEST(SplitMicrobatches, MatchesKeywordSpecsByKeyword) {
  const Microbatch batch = {
      .kwargs = {{"x", torch::zeros({2, 6})}, {"mask", torch::zeros({6, 2})}}};
  const auto microbatches = split_microbatches(
      batch, 2, {.kwargs = {{"mask", ChunkSpec::split(0)}, {"x", ChunkSpec::split(1)}}});
  EXPECT_THAT(extents(keyword_of(microbatches, "x"), 1), ElementsAre(3, 3));
  EXPECT_THAT(extents(keyword_of(microbatches, "mask"), 0), ElementsAre(3, 3));
}

// B1, one level down.
TEST(SplitValue, MatchesDictSpecsByKey) {
  const c10::IValue dict = dict_of({{"x", torch::zeros({2, 6})}, {"mask", torch::zeros({6, 2})}});
  const auto parts = split_value(dict, 2, ChunkSpec::from_named_dims({{"mask", 0}, {"x", 1}}));
  EXPECT_EQ(describe(parts[0]), R"({"x": float tensor [2, 3], "mask": float tensor [3, 2]})");
}

TEST(SplitMicrobatches, UsesTheDefaultForKeywordsWithoutSpec) {
  const auto microbatches =
      split_microbatches({.kwargs = {{"x", torch::zeros({2})}, {"mask", torch::zeros({2})}}}, 2,
                         {.kwargs = {{"mask", kReplicate}}});
  EXPECT_THAT(extents(keyword_of(microbatches, "x")), ElementsAre(1, 1));
  EXPECT_THAT(extents(keyword_of(microbatches, "mask")), ElementsAre(2, 2));
}

TEST(SplitMicrobatches, RejectsASpecForAKeywordThatIsNotGiven) {
  const SplitOptions options = {.kwargs = {{"msk", kReplicate}}};
  EXPECT_EQ(refusal({.kwargs = {{"mask", 1}, {"x", 2}}}, 2, options),
            "there is a spec for keyword \"msk\", which is not given; "
            "the keywords given are \"mask\", \"x\"");
  EXPECT_THAT(refusal({}, 2, options), HasSubstr("the keywords given are none"));
}

TEST(SplitMicrobatches, RejectsAnotherNumberOfSpecsThanArguments) {
  EXPECT_EQ(refusal({.args = {1, 2}}, 2, {.args = {{kReplicate}}}),
            "found 1 spec for 2 positional arguments; give one for each");
  EXPECT_EQ(refusal({}, 2, {.args = {{kReplicate, kReplicate}}}),
            "found 2 specs for 0 positional arguments; give one for each");
}

TEST(SplitMicrobatches, RejectsOtherKeysThanTheSpecNames) {
  const Microbatch batch = {.args = {1, tuple_of({dict_of({{"mask", 2}})})}};
  const auto with = [](const ChunkSpec& spec) {
    return SplitOptions{.args = {{kReplicate, ChunkSpec::sequence({spec})}}};
  };
  EXPECT_EQ(refusal(batch, 2, with(ChunkSpec::dict({{"mask", kReplicate}, {"x", kReplicate}}))),
            "argument 1[0]: the spec names key \"x\", which is not in {\"mask\": 2}");
  EXPECT_EQ(refusal(batch, 2, with(ChunkSpec::dict({}))),
            "argument 1[0]: key \"mask\" is not in the spec {}; name every key");
}

TEST(SplitValue, RejectsADictSpecForKeysThatAreNoText) {
  c10::impl::GenericDict dict(c10::IntType::get(), c10::AnyType::get());
  dict.insert(7, 1);
  EXPECT_THAT(
      [&] { split_value(dict, 2, ChunkSpec::dict({})); },
      ThrowsMessage<ArgumentError>(StrEq("value: key 7 is not in the spec {}; specs name keys that "
                                         "are strings, so give one spec such as split(0) for all "
                                         "of it")));
}

TEST(SplitMicrobatches, RejectsSpecsOfAnotherStructure) {
  const auto refuse = [](const c10::IValue& value, const ChunkSpec& spec) {
    return refusal({.args = {value}}, 2, {.args = {{spec}}});
  };
  EXPECT_EQ(refuse(dict_of({{"a", 1}}), ChunkSpec::from_dims({0})),
            "argument 0: found {\"a\": 1}, but the spec [split(0)] is for a tuple or list of 1; "
            "give a spec of the same structure, or one such as split(0) for all of it");
  EXPECT_THAT(refuse(tuple_of({1, 2}), ChunkSpec::from_dims({0})),
              HasSubstr("found (1, 2), but the spec [split(0)] is for a tuple or list of 1;"));
  EXPECT_THAT(refuse(tuple_of({1}), ChunkSpec::from_named_dims({{"a", 0}})),
              HasSubstr("found (1,), but the spec {\"a\": split(0)} is for a dict;"));
  EXPECT_THAT(refuse(torch::zeros({4}), ChunkSpec::from_dims({0})),
              HasSubstr("found float tensor [4], but the spec [split(0)] is for a tuple or list"));
}

TEST(SplitMicrobatches, NamesThePlaceInNestedArguments) {
  const Microbatch batch = {
      .args = {1, dict_of({{"mask", any_list_of({torch::zeros({2}), torch::zeros({1})})}})},
      .kwargs = {{"x", tuple_of({torch::tensor(1.0F)})}}};
  EXPECT_THAT(refusal(batch, 2), HasSubstr("(argument 1[\"mask\"][1], dimension 0)"));
  EXPECT_THAT(refusal(batch, 1, {.kwargs = {{"x", ChunkSpec::split(0)}}}),
              HasSubstr("keyword \"x\"[0]: cannot split"));
}

// B4: the reference fails on arguments without any leaf.
TEST(SplitMicrobatches, AcceptsArgumentsWithoutLeaves) {
  const auto microbatches = split_microbatches(
      {.args = {list_of(c10::IntType::get(), {})}, .kwargs = {{"options", dict_of({})}}}, 3);
  ASSERT_EQ(microbatches.size(), 3U);
  EXPECT_EQ(microbatches[2].args[0].type()->annotation_str(), "List[int]");
  EXPECT_EQ(describe(microbatches[2].kwargs.at("options")), "{}");
  EXPECT_EQ(split_microbatches({}, 2).size(), 2U);
}

TEST(SplitValue, GivesEachMicrobatchItsOwnContainers) {
  const auto parts = split_value(list_of(c10::IntType::get(), {1}), 2);
  parts[0].toList().push_back(2);
  EXPECT_EQ(parts[1].toListRef().size(), 1U);
}

}  // namespace
}  // namespace penstock::testing
