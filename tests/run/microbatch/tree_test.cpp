#include "penstock/run/microbatch/tree.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/run/microbatch/trees.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

c10::IValue plus_one(const c10::IValue& leaf) {
  return leaf.isInt() ? c10::IValue(leaf.toInt() + 1) : leaf;
}

std::vector<std::string> leaves_of(const c10::IValue& value) {
  std::vector<std::string> leaves;
  for_each_leaf(value, [&](const c10::IValue& leaf) { leaves.push_back(describe(leaf)); });
  return leaves;
}

TEST(ForEachLeaf, VisitsInIndexOrderAndDictsInInsertionOrder) {
  const c10::IValue tree = tuple_of(
      {1, any_list_of({2, tuple_of({3})}), dict_of({{"z", 4}, {"a", 5}}), pair_of(6, 7), "end"});
  EXPECT_THAT(leaves_of(tree), ElementsAre("1", "2", "3", "4", "5", "6", "7", "\"end\""));
}

TEST(ForEachLeaf, CountsNoneAsALeafAndEmptyBranchesAsNone) {
  EXPECT_THAT(leaves_of(tuple_of({c10::IValue(), any_list_of({}), dict_of({}), tuple_of({})})),
              ElementsAre("None"));
  EXPECT_THAT(leaves_of(c10::IValue()), ElementsAre("None"));
}

TEST(ForEachTensor, VisitsDefinedTensorsOnly) {
  const at::Tensor first = torch::ones({1});
  const at::Tensor second = torch::ones({2});
  const c10::IValue tree =
      tuple_of({first, 3, at::Tensor(), c10::IValue(), list_of(c10::TensorType::get(), {second})});
  std::vector<at::Tensor> seen;
  for_each_tensor(tree, [&](const at::Tensor& tensor) { seen.push_back(tensor); });
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen[0].is_same(first));
  EXPECT_TRUE(seen[1].is_same(second));
}

TEST(MapLeaves, KeepsKindsAndOrder) {
  const c10::IValue tree = tuple_of({1, any_list_of({2, "text"}), dict_of({{"z", 4}, {"a", 5}})});
  EXPECT_EQ(describe(map_leaves(tree, plus_one)), R"((2, [3, "text"], {"z": 5, "a": 6}))");
  EXPECT_EQ(describe(tree), R"((1, [2, "text"], {"z": 4, "a": 5}))");
}

TEST(MapLeaves, KeepsDeclaredTypes) {
  const c10::IValue list = list_of(c10::IntType::get(), {1, 2});
  EXPECT_EQ(map_leaves(list, plus_one).toIntVector(), (std::vector<std::int64_t>{2, 3}));
  const c10::IValue empty = list_of(c10::StringType::get(), {});
  EXPECT_EQ(map_leaves(empty, plus_one).type()->annotation_str(), "List[str]");
  const c10::IValue dict = dict_of({{"k", 1}}, c10::IntType::get());
  EXPECT_EQ(map_leaves(dict, plus_one).type()->annotation_str(), "Dict[str, int]");
  EXPECT_EQ(map_leaves(dict_of({}, c10::FloatType::get()), plus_one).type()->annotation_str(),
            "Dict[str, float]");
}

TEST(MapLeaves, KeepsTheFieldNamesOfANamedTuple) {
  const c10::IValue pair = pair_of(torch::ones({1}), torch::zeros({1}));
  const c10::IValue mapped = map_tensors(pair, [](const at::Tensor& tensor) { return tensor + 1; });
  const auto type = mapped.toTupleRef().type();
  ASSERT_NE(type->schema(), nullptr);
  EXPECT_EQ(tuple_name(mapped), "Pair");
  EXPECT_EQ(type->schema()->arguments()[1].name(), "right");
  EXPECT_TRUE(torch::equal(child(mapped, 0).toTensor(), torch::full({1}, 2.0)));
  EXPECT_EQ(tuple_name(map_leaves(tuple_of({1}), plus_one)), "");
}

TEST(MapLeaves, DeclaresAnyWhereALeafChangesItsKind) {
  const auto to_text = [](const c10::IValue& leaf) { return c10::IValue(describe(leaf)); };
  const c10::IValue list = map_leaves(list_of(c10::IntType::get(), {1}), to_text);
  EXPECT_EQ(list.toList().elementType()->kind(), c10::TypeKind::AnyType);
  const c10::IValue dict = map_leaves(dict_of({{"k", 1}}, c10::IntType::get()), to_text);
  EXPECT_EQ(dict.toGenericDict().valueType()->kind(), c10::TypeKind::AnyType);
  EXPECT_EQ(dict.toGenericDict().keyType()->kind(), c10::TypeKind::StringType);
}

TEST(MapLeaves, DeclaresTheNewTypeWhereAFieldChangesItsKind) {
  const auto second = [](const c10::IValue& value) {
    return
        [next = 0, value](const c10::IValue& leaf) mutable { return next++ == 0 ? leaf : value; };
  };
  const c10::IValue pair = pair_of(torch::ones({1}), torch::ones({1}));
  const c10::IValue with_int = map_leaves(pair, second(7));
  const auto type = with_int.toTupleRef().type();
  ASSERT_NE(type->schema(), nullptr);
  EXPECT_EQ(type->elements()[0]->kind(), c10::TypeKind::TensorType);
  EXPECT_EQ(type->elements()[1]->kind(), c10::TypeKind::IntType);
  EXPECT_EQ(type->schema()->arguments()[1].name(), "right");
  const c10::IValue with_tensor = map_leaves(with_int, second(torch::ones({2})));
  EXPECT_EQ(*with_tensor.toTupleRef().type()->elements()[1], *c10::TensorType::get());
}

TEST(MapTensors, LeavesTheRestAlone) {
  const c10::IValue tree = tuple_of({torch::ones({2}), 3, at::Tensor(), c10::IValue()});
  const c10::IValue mapped = map_tensors(tree, [](const at::Tensor& tensor) { return tensor * 2; });
  EXPECT_TRUE(torch::equal(child(mapped, 0).toTensor(), torch::full({2}, 2.0)));
  EXPECT_EQ(child(mapped, 1).toInt(), 3);
  EXPECT_FALSE(child(mapped, 2).toTensor().defined());
  EXPECT_TRUE(child(mapped, 3).isNone());
}

TEST(Describe, GivesTypeShapeAndGradOfTensors) {
  EXPECT_EQ(describe(torch::ones({2, 3})), "float tensor [2, 3]");
  EXPECT_EQ(describe(torch::ones({}, torch::kLong)), "long tensor []");
  EXPECT_EQ(describe(torch::ones({4}, torch::requires_grad())), "float tensor [4] requires grad");
  EXPECT_EQ(describe(torch::ones({2}, torch::kMeta)), "float tensor [2] on meta");
  EXPECT_EQ(describe(at::Tensor()), "undefined tensor");
}

TEST(Describe, WritesTreesOnOneLine) {
  const c10::IValue tree =
      tuple_of({torch::ones({2, 3}), dict_of({{"mask", torch::ones({4}, torch::kBool)}, {"k", 3}}),
                c10::IValue()});
  EXPECT_EQ(describe(tree), R"((float tensor [2, 3], {"mask": bool tensor [4], "k": 3}, None))");
  EXPECT_EQ(describe(tuple_of({any_list_of({1.0, true, "a\nb"})})), R"(([1.0, true, "a\x0ab"],))");
  EXPECT_EQ(describe(c10::Device("cpu")), "device cpu");
  EXPECT_EQ(describe(c10::complex<double>(1, 2)), "<ComplexDouble>");
  EXPECT_EQ(describe(tuple_of({any_list_of({}), dict_of({}), tuple_of({})})), "([], {}, ())");
}

TEST(Describe, ShortensLongThings) {
  EXPECT_EQ(describe(list_of(c10::IntType::get(), std::vector<c10::IValue>(20, 7))),
            "[7, 7, 7, 7, 7, 7, 7, 7, ... 12 more]");
  EXPECT_LT(describe(std::string(1'000'000, 'x')).size(), 60U);
  c10::IValue nested = 1;
  for (int level = 0; level < 6; ++level) {
    nested = tuple_of(std::vector<c10::IValue>(8, nested));
  }
  EXPECT_LT(describe(nested).size(), 310U);
  EXPECT_THAT(describe(nested), EndsWith("..."));
}

TEST(EqualValues, ComparesTensorsByTypeShapeAndElements) {
  EXPECT_TRUE(equal_values(torch::ones({2}), torch::ones({2})));
  EXPECT_FALSE(equal_values(torch::ones({2}), torch::zeros({2})));
  EXPECT_FALSE(equal_values(torch::ones({2}), torch::ones({2}, torch::kDouble)));
  EXPECT_FALSE(equal_values(torch::ones({2}), torch::ones({1, 2})));
  EXPECT_FALSE(equal_values(torch::ones({2}), torch::ones({2}, torch::kMeta)));
  EXPECT_FALSE(equal_values(torch::ones({2}), at::Tensor()));
  EXPECT_TRUE(equal_values(at::Tensor(), at::Tensor()));
  EXPECT_FALSE(equal_values(at::Tensor(), c10::IValue()));
  const at::Tensor nan = torch::full({1}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(equal_values(nan, nan));
}

TEST(EqualValues, ComparesLeavesByKindAndValue) {
  EXPECT_TRUE(equal_values(c10::IValue(), c10::IValue()));
  EXPECT_TRUE(equal_values("a", "a"));
  EXPECT_FALSE(equal_values("a", "b"));
  EXPECT_FALSE(equal_values(1, 2));
  EXPECT_FALSE(equal_values(1, 1.0));
  EXPECT_FALSE(equal_values(1, true));
  EXPECT_FALSE(equal_values(0, c10::IValue()));
}

TEST(EqualValues, ComparesBranchesByKindAndChildren) {
  EXPECT_TRUE(equal_values(tuple_of({1, tuple_of({2})}), tuple_of({1, tuple_of({2})})));
  EXPECT_FALSE(equal_values(tuple_of({1, tuple_of({2})}), tuple_of({1, tuple_of({3})})));
  EXPECT_FALSE(equal_values(tuple_of({1}), tuple_of({1, 2})));
  EXPECT_FALSE(equal_values(tuple_of({1, 2}), tuple_of({1})));
  EXPECT_FALSE(equal_values(tuple_of({1}), any_list_of({1})));
  EXPECT_FALSE(equal_values(tuple_of({}), dict_of({})));
  EXPECT_FALSE(equal_values(tuple_of({1}), 1));
}

TEST(EqualValues, ComparesDictsByKey) {
  EXPECT_TRUE(equal_values(dict_of({{"a", 1}, {"b", 2}}), dict_of({{"b", 2}, {"a", 1}})));
  EXPECT_FALSE(equal_values(dict_of({{"a", 1}, {"b", 2}}), dict_of({{"b", 1}, {"a", 2}})));
  EXPECT_FALSE(equal_values(dict_of({{"a", 1}}), dict_of({{"b", 1}})));
  EXPECT_FALSE(equal_values(dict_of({{"a", 1}}), dict_of({{"a", 1}, {"b", 2}})));
}

TEST(EqualValues, ComparesOtherObjectsByIdentity) {
  const auto first = torch::jit::Module("Thing");
  const auto second = torch::jit::Module("Thing");
  EXPECT_TRUE(equal_values(first._ivalue(), first._ivalue()));
  EXPECT_FALSE(equal_values(first._ivalue(), second._ivalue()));
  EXPECT_FALSE(equal_values(first._ivalue(), 3));
  EXPECT_THAT(describe(first._ivalue()), HasSubstr("Object"));
}

}  // namespace
}  // namespace penstock::testing
