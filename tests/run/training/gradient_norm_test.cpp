#include "penstock/run/training/gradient_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <torch/torch.h>

#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/training/square_sum.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/models.h"
#include "tests/run/support/rank_processes.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SquareSum squares_of(const torch::Tensor& values) {
  SquareSum sum;
  sum.add(values);
  return sum;
}

// Any bits, so that very large, very small and subnormal numbers come up as often as others.
template <typename Value, typename Bits>
Value finite_from(Bits bits) {
  const Value value = std::bit_cast<Value>(bits);
  return std::isfinite(value) ? value : Value{1};
}
template <typename Value, typename Bits>
std::vector<Value> finite_from(const std::vector<Bits>& bits) {
  std::vector<Value> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(),
                 [](Bits pattern) { return finite_from<Value>(pattern); });
  return values;
}

template <typename Value>
torch::Tensor tensor_of(const std::vector<Value>& values) {
  const auto type = std::is_same_v<Value, double> ? torch::kDouble : torch::kFloat;
  torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(values.size())}, type);
  std::copy(values.begin(), values.end(), tensor.data_ptr<Value>());
  return tensor;
}

TEST(SquareSum, OfOneNumberHasItAsItsNorm) {
  rc::check("doubles", [](std::uint64_t bits) {
    const auto value = finite_from<double>(bits);
    RC_ASSERT(squares_of(torch::full({1}, value, torch::kDouble)).norm() == std::fabs(value));
  });
  rc::check("floats", [](std::uint32_t bits) {
    const auto value = finite_from<float>(bits);
    RC_ASSERT(squares_of(tensor_of<float>({value})).norm() == std::fabs(double{value}));
  });
  for (const double value :
       {0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::min(), 1.0,
        -std::numeric_limits<double>::max()}) {
    EXPECT_EQ(squares_of(torch::full({1}, value, torch::kDouble)).norm(), std::fabs(value));
  }
}

// Whole numbers times a power of two, whose squares add up without rounding in 128 bits.
TEST(SquareSum, IsThatOfIntegers) {
  __extension__ using Wide = unsigned __int128;
  const auto check = [](const std::string& name, at::ScalarType type, std::int64_t largest,
                        int lowest_scale, int highest_scale) {
    rc::check(name, [=] {
      const auto numbers = *rc::gen::container<std::vector<std::int64_t>>(
          rc::gen::inRange<std::int64_t>(-largest, largest + 1));
      const int scale = *rc::gen::inRange(lowest_scale, highest_scale + 1);
      Wide sum = 0;
      std::vector<double> values;
      for (const std::int64_t number : numbers) {
        const auto size = static_cast<std::uint64_t>(number < 0 ? -number : number);
        sum += Wide{size} * size;
        values.push_back(std::ldexp(static_cast<double>(number), scale));
      }
      const double expected = std::ldexp(std::sqrt(static_cast<double>(sum)), scale);
      RC_ASSERT(squares_of(tensor_of(values).to(type)).norm() == expected);
    });
  };
  check("float", at::kFloat, (1 << 24) - 1, -149, 100);
  check("double", at::kDouble, (std::int64_t{1} << 53) - 1, -1074, 960);
  check("half", at::kHalf, (1 << 11) - 1, -24, 4);
  check("bfloat16", at::kBFloat16, (1 << 8) - 1, -133, 119);
}

TEST(SquareSum, DoesNotDependOnTheOrder) {
  rc::check("doubles and floats", [](const std::vector<std::uint64_t>& doubles,
                                     const std::vector<std::uint32_t>& floats) {
    std::vector<double> wide = finite_from<double>(doubles);
    std::vector<float> narrow = finite_from<float>(floats);
    SquareSum sum = squares_of(tensor_of(wide));
    sum += squares_of(tensor_of(narrow));
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    std::shuffle(wide.begin(), wide.end(), random);
    std::shuffle(narrow.begin(), narrow.end(), random);
    SquareSum other = squares_of(tensor_of(narrow));
    other += squares_of(tensor_of(wide));
    RC_ASSERT(other == sum);
  });
}

TEST(SquareSum, DoesNotDependOnWhoAddsWhat) {
  rc::check("three parts", [](const std::vector<std::uint64_t>& bits) {
    const std::vector<double> values = finite_from<double>(bits);
    std::array<SquareSum, 3> parts;
    for (const double value : values) {
      const auto part = *rc::gen::inRange<std::size_t>(0, parts.size());
      parts[part].add(torch::full({1}, value, torch::kDouble));
    }
    SquareSum left = parts[0];
    left += parts[1];
    left += parts[2];
    SquareSum right = parts[1];
    right += parts[2];
    right += parts[0];
    RC_ASSERT(left == right);
    RC_ASSERT(left == squares_of(tensor_of(values)));
  });
}

// More numbers than fit in one block of the loop, and all lanes at their limits.
TEST(SquareSum, CarriesWhatDoesNotFit) {
  constexpr std::int64_t kCount = 300'001;
  const float largest = std::numeric_limits<float>::max();
  const SquareSum sum = squares_of(torch::full({kCount}, largest));
  const auto square = static_cast<long double>(largest) * largest;  // 48 bits
  EXPECT_EQ(sum.norm(), std::sqrt(static_cast<double>(square * kCount)));
  const double huge = std::numeric_limits<double>::max();
  EXPECT_EQ(squares_of(torch::full({4}, huge / 2, torch::kDouble)).norm(), huge);
  EXPECT_EQ(squares_of(torch::full({5}, huge, torch::kDouble)).norm(), kInfinity);
}

TEST(SquareSum, KeepsTheSmallBesideTheLarge) {
  SquareSum sum = squares_of(torch::full({1}, 1e300, torch::kDouble));
  const SquareSum large = sum;
  sum.add(torch::full({1}, 1e-300, torch::kDouble));
  EXPECT_FALSE(sum == large);
  EXPECT_EQ(sum.norm(), large.norm());
}

TEST(SquareSum, RoundsToTheNearestAndToEven) {
  const auto norm_of_sum = [](double large, double small) {
    SquareSum sum = squares_of(torch::full({1}, large, torch::kDouble));
    sum.add(torch::full({1}, small, torch::kDouble));
    return sum.norm();
  };
  // 2^54 + 1 lies between two doubles a distance of 4 apart, nearer to the lower; 2^54 + 2 halfway.
  EXPECT_EQ(norm_of_sum(std::ldexp(1, 27), 1), std::sqrt(std::ldexp(1, 54)));
  EXPECT_EQ(norm_of_sum(std::ldexp(1, 27), std::sqrt(2.0)), std::sqrt(std::ldexp(1, 54) + 4));
  EXPECT_EQ(norm_of_sum(std::ldexp(1, 27), 2), std::sqrt(std::ldexp(1, 54) + 4));
}

TEST(SquareSum, SaysWhatIsNotFinite) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    SquareSum sum = squares_of(torch::ones({7}, type));
    sum += squares_of(torch::full({1}, -kInfinity, type));
    EXPECT_EQ(sum.norm(), kInfinity);
    sum += squares_of(torch::full({1}, kNan, type));
    EXPECT_TRUE(std::isnan(sum.norm()));
    sum += squares_of(torch::full({1}, kInfinity, type));
    EXPECT_TRUE(std::isnan(sum.norm()));
  }
}

TEST(SquareSum, TravelsAsATensor) {
  rc::check([](const std::vector<std::uint64_t>& bits) {
    const SquareSum sum = squares_of(tensor_of(finite_from<double>(bits)));
    RC_ASSERT(SquareSum::from_tensor(sum.to_tensor()) == sum);
  });
  for (const double value : {kInfinity, kNan}) {
    const SquareSum sum = squares_of(torch::full({1}, value));
    EXPECT_EQ(SquareSum::from_tensor(sum.to_tensor()), sum);
  }
  EXPECT_EQ(message_of([] { SquareSum::from_tensor(torch::zeros({3})); }),
            "expected a sum of squares, which is 68 integers, but got 3");
}

TEST(SquareSum, TakesTensorsOfEveryLayout) {
  torch::manual_seed(1);
  const torch::Tensor values = torch::randn({4, 6});
  const SquareSum expected = squares_of(values);
  EXPECT_EQ(squares_of(values.t()), expected);
  EXPECT_EQ(squares_of(torch::cat({values, values}, 1).slice(1, 6, 12)), expected);
  EXPECT_EQ(squares_of(values.to_sparse()), expected);
  EXPECT_EQ(squares_of(torch::view_as_complex(values.reshape({4, 3, 2}))), expected);
  EXPECT_EQ(squares_of(torch::Tensor()), SquareSum());
  const torch::Tensor twice =
      torch::sparse_coo_tensor(torch::zeros({1, 2}, torch::kLong), torch::tensor({1.0, 2.0}), {3});
  EXPECT_EQ(squares_of(twice).norm(), 3);
  EXPECT_EQ(message_of([] { squares_of(torch::zeros({2}, torch::kInt)); }),
            "a tensor of type Int has no norm; expected float, double, half or bfloat16");
}

torch::Tensor with_gradient(const torch::Tensor& gradient) {
  torch::Tensor parameter = torch::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(ClipGradNorm, ScalesGradientsThatAreTooLong) {
  const torch::Tensor first = with_gradient(torch::tensor({3.0F}));
  const torch::Tensor second = with_gradient(torch::tensor({0.0, 4.0}, torch::kDouble));
  const torch::Tensor none = torch::zeros({2}).requires_grad_();
  const GradientNorm result = clip_grad_norm({first, second, none, first}, 1.0);
  EXPECT_EQ(result.norm, 5);
  EXPECT_TRUE(result.is_clipped());
  EXPECT_EQ(result.scale, 1 / (5 + 1e-6));
  EXPECT_EQ(first.grad().item<float>(), 3 * static_cast<float>(result.scale));
  EXPECT_EQ(second.grad()[1].item<double>(), 4 * result.scale);
  EXPECT_FALSE(none.grad().defined());
}

TEST(ClipGradNorm, LeavesOthersAlone) {
  const torch::Tensor parameter = with_gradient(torch::tensor({3.0F, 4.0F}));
  for (const double max_norm : {6.0, kNoLimit}) {
    const GradientNorm result = clip_grad_norm({parameter}, max_norm);
    EXPECT_EQ(result.norm, 5);
    EXPECT_FALSE(result.is_clipped());
  }
  EXPECT_TRUE(torch::equal(parameter.grad(), torch::tensor({3.0F, 4.0F})));
}

TEST(ClipGradNorm, ChangesNothingIfAGradientIsNotFinite) {
  const torch::Tensor parameter = with_gradient(torch::tensor({3e8, kInfinity}));
  const GradientNorm result = clip_grad_norm({parameter}, 1.0);
  EXPECT_FALSE(result.is_finite());
  EXPECT_EQ(result.norm, kInfinity);
  EXPECT_EQ(parameter.grad()[0].item<float>(), 3e8F);
}

TEST(ClipGradNorm, IsCloseToThatOfPyTorch) {
  torch::manual_seed(2);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    std::vector<torch::Tensor> own;
    std::vector<torch::Tensor> others;
    for (int index = 0; index < 5; ++index) {
      const torch::Tensor gradient = torch::randn({17, 9}).to(type);
      own.push_back(with_gradient(gradient.clone()));
      others.push_back(with_gradient(gradient.to(at::kFloat)));
    }
    const double expected = torch::nn::utils::clip_grad_norm_(others, 2.0);
    EXPECT_NEAR(clip_grad_norm(own, 2.0).norm, expected, 1e-5 * expected);
    const double tolerance = type == at::kFloat ? 1e-6 : 1e-2;
    EXPECT_TRUE(torch::allclose(own[3].grad().to(at::kFloat), others[3].grad(), tolerance));
  }
}

TEST(ClipGradNorm, RefusesALimitThatIsNone) {
  for (const double limit : {0.0, -1.0}) {
    EXPECT_THAT(message_of([&] { clip_grad_norm(std::vector<at::Tensor>(), limit); }),
                ::testing::StartsWith("gradients cannot be clipped to a norm of "));
  }
}

// Gradients of a step of `blocks`, which are stages of a pipeline of two ranks.
GradientNorm clipped_in_pipeline(const Blocks& blocks, const std::shared_ptr<RankGroup>& group,
                                 double max_norm) {
  const TestModel model = gpt_model();
  StageList stages = make_stages(blocks);
  if (group != nullptr) {
    const int rank = group->local_ranks().front();
    std::erase_if(stages, [rank](const auto& stage) { return stage->index() != rank; });
  }
  Schedule1F1B pipeline(stages, {.num_microbatches = 3, .group = group, .loss = model.loss});
  pipeline.step({model.make_inputs(6)}, {.target = model.make_targets(6)});
  return clip_grad_norm(pipeline, max_norm);
}

TEST(ClipGradNorm, IsTheSameForAPipelineAndForOneProcess) {
  const Blocks blocks = gpt_model().make(2);
  const GradientNorm whole = clipped_in_pipeline(blocks, nullptr, kNoLimit);
  std::vector<torch::Tensor> parameters = parameters_of(blocks);
  std::reverse(parameters.begin(), parameters.end());
  EXPECT_EQ(clip_grad_norm(parameters, kNoLimit).norm, whole.norm);
  EXPECT_GT(whole.norm, 0);
}

TEST(ClipGradNorm, IsTheSameOverProcesses) {
  run_in_processes(2, [](const WorldOptions& options) {
    const Blocks blocks = gpt_model().make(2);
    clipped_in_pipeline(blocks, nullptr, kNoLimit);
    const double max_norm = clip_grad_norm(parameters_of(blocks), kNoLimit).norm / 2;
    const GradientNorm whole = clip_grad_norm(parameters_of(blocks), max_norm);
    World world(options);
    const Blocks own = gpt_model().make(2);
    const GradientNorm part = clipped_in_pipeline(
        own, std::make_shared<ProcessRanks>(world, ProcessRankOptions()), max_norm);
    EXPECT_EQ(part.norm, whole.norm);
    EXPECT_EQ(part.scale, whole.scale);
    EXPECT_TRUE(part.is_clipped());
    const auto stage = static_cast<std::size_t>(options.rank);
    for (const auto& parameter : blocks[stage]->named_parameters()) {
      EXPECT_TRUE(torch::equal(own[stage]->named_parameters()[parameter.key()].grad(),
                               parameter.value().grad()))
          << parameter.key();
    }
  });
}

}  // namespace
}  // namespace penstock
