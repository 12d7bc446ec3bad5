#include "penstock/run/microbatch/merge.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/run/microbatch/split.h"
#include "penstock/run/microbatch/tree.h"
#include "tests/run/microbatch/trees.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;

using Values = std::vector<c10::IValue>;

// The message of the error that merging throws.
std::string refusal(const Values& values, const std::optional<ChunkSpec>& spec = std::nullopt) {
  try {
    merge_microbatches(values, spec);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

c10::IValue merged(const Values& values, const std::optional<ChunkSpec>& spec = std::nullopt) {
  return merge_microbatches(values, spec);
}

// Oracle 1 of the specification, second half.
TEST(MergeMicrobatches, UndoesTheSplit) {
  const c10::IValue batch =
      tuple_of({torch::randn({128, 4}), torch::randn({256, 4}), torch::randn({512, 4})});
  EXPECT_TRUE(equal_values(merged(split_value(batch, 2), ChunkSpec::from_dims({0, 0, 0})), batch));
}

// Oracle 2 of the specification, without the Pipe: specs from dimensions, four microbatches.
TEST(MergeMicrobatches, GivesWhatTheModelReturnsForTheBatch) {
  torch::manual_seed(1);
  const at::Tensor weight = torch::randn({8, 8});
  const auto model = [&](const at::Tensor& x, const at::Tensor& y) {
    return torch::relu(x.matmul(weight)) + y;
  };
  const Microbatch batch = {.args = {torch::randn({16, 8})},
                            .kwargs = {{"y", torch::randn({16, 8})}}};
  const auto microbatches = split_microbatches(
      batch, 4, {.args = {{ChunkSpec::split(0)}}, .kwargs = {{"y", ChunkSpec::split(0)}}});
  Values outputs;
  for (const Microbatch& microbatch : microbatches) {
    outputs.push_back(model(microbatch.args[0].toTensor(), microbatch.kwargs.at("y").toTensor()));
  }
  ASSERT_EQ(outputs.size(), 4U);
  EXPECT_TRUE(torch::allclose(merged(outputs).toTensor(),
                              model(batch.args[0].toTensor(), batch.kwargs.at("y").toTensor())));
}

TEST(MergeMicrobatches, ConcatenatesAlongTheDimensionOfTheSpec) {
  const Values values = {torch::zeros({2, 1}), torch::ones({2, 2})};
  const at::Tensor expected = torch::tensor({{0.0F, 1.0F, 1.0F}, {0.0F, 1.0F, 1.0F}});
  EXPECT_TRUE(torch::equal(merged(values, ChunkSpec::split(1)).toTensor(), expected));
  EXPECT_TRUE(torch::equal(merged(values, ChunkSpec::split(-1)).toTensor(), expected));
}

TEST(MergeMicrobatches, PromotesTypesAndKeepsHistory) {
  const at::Tensor leaf = torch::ones({2}, torch::requires_grad());
  const at::Tensor result = merged({leaf * 2, torch::ones({1}, torch::kLong)}).toTensor();
  EXPECT_EQ(result.scalar_type(), torch::kFloat);
  result.sum().backward();
  EXPECT_TRUE(torch::equal(leaf.grad(), torch::full({2}, 2.0F)));
}

TEST(MergeMicrobatches, PassesOnASingleMicrobatchWithoutACopy) {
  const at::Tensor output = torch::ones({2, 2});
  EXPECT_TRUE(merged({output}).toTensor().is_same(output));
  EXPECT_TRUE(merged({output}, ChunkSpec::split(1)).toTensor().is_same(output));
  EXPECT_THAT(refusal({output}, ChunkSpec::split(2)), HasSubstr("along dimension 2"));
}

TEST(MergeMicrobatches, KeepsKindsTypesAndNames) {
  const auto output = [](std::int64_t rows) {
    return tuple_of({list_of(c10::TensorType::get(), {torch::zeros({rows})}),
                     dict_of({{"z", torch::zeros({rows})}}, c10::TensorType::get()),
                     pair_of(torch::zeros({rows}), torch::zeros({rows, 2})), 3, c10::IValue()});
  };
  const c10::IValue result = merged({output(2), output(1)});
  EXPECT_EQ(describe(result),
            "([float tensor [3]], {\"z\": float tensor [3]}, "
            "(float tensor [3], float tensor [3, 2]), 3, None)");
  EXPECT_EQ(child(result, 0).toTensorVector().size(), 1U);
  EXPECT_EQ(child(result, 1).type()->annotation_str(), "Dict[str, Tensor]");
  EXPECT_EQ(tuple_name(child(result, 2)), "Pair");
}

// The reference gives the result the structure of the spec instead.
TEST(MergeMicrobatches, FollowsTheStructureOfTheValuesNotOfTheSpec) {
  const Values values = {list_of(c10::TensorType::get(), {torch::zeros({1})}),
                         list_of(c10::TensorType::get(), {torch::zeros({1})})};
  EXPECT_TRUE(merged(values, ChunkSpec::from_dims({0})).isTensorList());
}

// B2: the reference pairs dict specs by position, which swaps values between keys.
TEST(MergeMicrobatches, MatchesDictSpecsByKey) {
  const c10::IValue output = dict_of({{"x", torch::zeros({2, 1})}, {"a", torch::ones({1, 2})}});
  const c10::IValue result =
      merged({output, output}, ChunkSpec::from_named_dims({{"a", 0}, {"x", 1}}));
  EXPECT_EQ(describe(result), R"({"x": float tensor [2, 2], "a": float tensor [2, 2]})");
  EXPECT_TRUE(torch::equal(child(result, "a").toTensor(), torch::ones({2, 2})));
}

TEST(MergeMicrobatches, MatchesDictsOfMicrobatchesByKey) {
  const c10::IValue result = merged({dict_of({{"a", torch::zeros({1})}, {"b", torch::ones({1})}}),
                                     dict_of({{"b", torch::ones({1})}, {"a", torch::zeros({1})}})});
  EXPECT_TRUE(torch::equal(child(result, "a").toTensor(), torch::zeros({2})));
  EXPECT_TRUE(torch::equal(child(result, "b").toTensor(), torch::ones({2})));
}

// B3: the reference cannot compare replicated tensors of several elements.
TEST(MergeMicrobatches, ComparesReplicatedTensorsByTheirElements) {
  const Values same = {torch::ones({3}), torch::ones({3}), torch::ones({3})};
  EXPECT_TRUE(torch::equal(merged(same, ChunkSpec::replicate()).toTensor(), torch::ones({3})));
  EXPECT_EQ(refusal({tuple_of({torch::ones({3})}), tuple_of({torch::ones({3})}),
                     tuple_of({torch::zeros({3})})},
                    ChunkSpec::replicate()),
            "output[0]: microbatch 2 returned float tensor [3], microbatch 0 returned float tensor "
            "[3]; they differ, but a replicated value is the same in every microbatch");
}

TEST(MergeMicrobatches, TakesNaNForTheSameAsNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const c10::IValue output = tuple_of({nan, torch::tensor({1.0, nan})});
  const c10::IValue same = tuple_of({nan, torch::tensor({1.0, nan})});
  const c10::IValue other = tuple_of({nan, torch::tensor({nan, 1.0})});
  EXPECT_TRUE(equal_values(merged({output, same}, ChunkSpec::replicate()), output));
  EXPECT_THAT(refusal({output, other}, ChunkSpec::replicate()), HasSubstr("output[1]"));
  EXPECT_THAT(refusal({nan, 1.0}), HasSubstr("they differ"));
}

TEST(MergeMicrobatches, ReplicatesWhatIsNoTensorByDefault) {
  const c10::IValue output = tuple_of({3, "text", c10::IValue(), at::Tensor()});
  EXPECT_TRUE(equal_values(merged({output, output}), output));
  EXPECT_EQ(refusal({dict_of({{"k", 3}}), dict_of({{"k", 4}})}),
            "output[\"k\"]: microbatch 1 returned 4, microbatch 0 returned 3; they differ and "
            "cannot be concatenated; give an output spec with a reducer, such as ChunkSpec::sum()");
}

TEST(MergeMicrobatches, StacksTensorsWithoutDimensions) {
  const at::Tensor leaf = torch::tensor(1.0F, torch::requires_grad());
  const at::Tensor result = merged({leaf * 2, torch::tensor(2.0F)}).toTensor();
  EXPECT_TRUE(torch::equal(result, torch::tensor({2.0F, 2.0F}))) << "equal or not";
  result.sum().backward();
  EXPECT_EQ(leaf.grad().item<float>(), 2);
  EXPECT_EQ(merged({torch::tensor(1.0F)}).toTensor().sizes(), torch::IntArrayRef({1}));
  EXPECT_EQ(merged({leaf, leaf}, ChunkSpec::replicate()).toTensor().dim(), 0);
  EXPECT_EQ(refusal({torch::tensor(1.0F), 2}),
            "output: microbatch 1 returned 2, microbatch 0 returned float tensor []; to make one "
            "entry of each, all must be such tensors");
  EXPECT_THAT(refusal({torch::tensor(1.0F), torch::ones({1})}), HasSubstr("all must be such"));
}

TEST(MergeMicrobatches, RefusesToConcatenateTensorsWithoutDimensions) {
  EXPECT_EQ(refusal({torch::tensor(1.0F), torch::tensor(1.0F)}, ChunkSpec::split(0)),
            "output: cannot concatenate float tensor [] along dimension 0; it has no dimensions "
            "(use the spec replicate)");
}

TEST(MergeMicrobatches, AppliesAnInheritedSplitToTensorsOnly) {
  const c10::IValue output = tuple_of({torch::ones({1, 2}), 3});
  EXPECT_EQ(describe(merged({output, output}, ChunkSpec::split(1))), "(float tensor [1, 4], 3)");
  EXPECT_THAT(refusal({3, 3}, ChunkSpec::split(0)),
              HasSubstr("output: cannot concatenate 3 along dimension 0; expected a tensor"));
}

TEST(MergeMicrobatches, FoldsFromTheFirstMicrobatchToTheLast) {
  const ChunkSpec join =
      ChunkSpec::reduce("<", [](const c10::IValue& left, const c10::IValue& right) {
        return c10::IValue(left.toStringRef() + right.toStringRef());
      });
  EXPECT_EQ(merged({"a", "b", "c"}, join).toStringRef(), "<abc");
}

TEST(MergeMicrobatches, SumsTensorsAndNumbersIntoATensor) {
  const at::Tensor leaf = torch::tensor(2.0F, torch::requires_grad());
  const c10::IValue result =
      merged({dict_of({{"loss", leaf * 3}, {"count", 4}}),
              dict_of({{"loss", torch::tensor(1.0F)}, {"count", 5}})},
             ChunkSpec::dict({{"loss", ChunkSpec::sum()}, {"count", ChunkSpec::sum()}}));
  const at::Tensor loss = child(result, "loss").toTensor();
  EXPECT_EQ(loss.item<float>(), 7.0F);
  loss.backward();
  EXPECT_EQ(leaf.grad().item<float>(), 3.0F);
  EXPECT_EQ(child(result, "count").toTensor().item<float>(), 9.0F);
  EXPECT_EQ(child(result, "count").toTensor().scalar_type(), torch::kFloat);
}

TEST(MergeMicrobatches, ReducesEachLeafOfABranch) {
  const c10::IValue result =
      merged({tuple_of({1, 10}), tuple_of({2, 20}), tuple_of({3, 30})}, ChunkSpec::sum());
  EXPECT_EQ(child(result, 0).toTensor().item<float>(), 6.0F);
  EXPECT_EQ(child(result, 1).toTensor().item<float>(), 60.0F);
}

TEST(MergeMicrobatches, DeclaresAnyForAListWhoseElementsWereReducedToAnotherKind) {
  const c10::IValue ints = list_of(c10::IntType::get(), {1});
  EXPECT_EQ(merged({ints, ints}, ChunkSpec::sum()).toList().elementType()->kind(),
            c10::TypeKind::AnyType);
}

TEST(MergeMicrobatches, StartsEveryFoldFromTheInitialValue) {
  const ChunkSpec in_place =
      ChunkSpec::reduce(torch::zeros({1}), [](const c10::IValue& left, const c10::IValue& right) {
        return c10::IValue(left.toTensor().add_(right.toTensor()));
      });
  const Values values = {torch::ones({1}), torch::ones({1})};
  EXPECT_EQ(merged(values, in_place).toTensor().item<float>(), 2.0F);
  EXPECT_EQ(merged(values, in_place).toTensor().item<float>(), 2.0F);
}

TEST(MergeMicrobatches, SaysWhichMicrobatchCannotBeReduced) {
  EXPECT_EQ(refusal({tuple_of({1}), tuple_of({"two"})}, ChunkSpec::sum()),
            "output[0], microbatch 1: cannot add \"two\" to a sum; expected a tensor or a number");
}

TEST(MergeMicrobatches, RejectsOutputsOfDifferentStructure) {
  const std::string expected = "all microbatches must return the same structure";
  EXPECT_EQ(refusal({tuple_of({1, tuple_of({2, 3})}), tuple_of({1, tuple_of({2})})}),
            "output[1]: microbatch 1 returned (2,), microbatch 0 returned (2, 3); " + expected);
  EXPECT_THAT(refusal({tuple_of({2}), tuple_of({2, 3})}), HasSubstr(expected));
  EXPECT_THAT(refusal({tuple_of({1}), any_list_of({1})}), HasSubstr(expected));
  EXPECT_THAT(refusal({tuple_of({1}), 1}), HasSubstr(expected));
  EXPECT_THAT(refusal({1, tuple_of({1})}), HasSubstr(expected));
  EXPECT_THAT(refusal({dict_of({{"a", 1}}), dict_of({{"b", 1}})}), HasSubstr(expected));
  EXPECT_THAT(refusal({dict_of({{"a", 1}}), dict_of({{"a", 1}, {"b", 1}})}), HasSubstr(expected));
  EXPECT_THAT(refusal({dict_of({}), dict_of({{"a", 1}})}), HasSubstr(expected));
  EXPECT_THAT(refusal({tuple_of({}), 1}), HasSubstr(expected));
}

TEST(MergeMicrobatches, RejectsTensorsThatDoNotFitTogether) {
  EXPECT_EQ(refusal({torch::zeros({2, 3}), torch::zeros({2, 3}), torch::zeros({2, 4})}),
            "output: microbatch 2 returned float tensor [2, 4], microbatch 0 returned float tensor "
            "[2, 3]; to concatenate along dimension 0, all other dimensions must agree");
  EXPECT_THAT(refusal({torch::zeros({2}), torch::tensor(1.0F)}), HasSubstr("must agree"));
  EXPECT_THAT(refusal({torch::zeros({2}), 3}), HasSubstr("microbatch 1 returned 3,"));
  EXPECT_THAT(refusal({torch::zeros({2}), at::Tensor()}), HasSubstr("returned undefined tensor"));
}

TEST(MergeMicrobatches, RejectsSpecsOfAnotherStructure) {
  EXPECT_THAT(refusal({torch::zeros({2})}, ChunkSpec::from_dims({0})),
              HasSubstr("output: found float tensor [2], but the spec [split(0)] is for"));
  EXPECT_THAT(refusal({dict_of({{"a", 1}})}, ChunkSpec::from_named_dims({{"a", 0}, {"b", 0}})),
              HasSubstr("output: the spec names key \"b\", which is not in {\"a\": 1}"));
}

TEST(MergeMicrobatches, RejectsNoMicrobatches) {
  const std::string expected = "there are no microbatches to merge; expected at least 1";
  EXPECT_EQ(refusal({}), expected);
  EXPECT_EQ(refusal({}, ChunkSpec::sum()), expected);
}

}  // namespace
}  // namespace penstock::testing
