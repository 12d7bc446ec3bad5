#include "penstock/run/random/random_scope.h"

#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace penstock {
namespace {

torch::Tensor dropout_mask() {
  return torch::dropout(torch::ones({64}), 0.5, true);
}

torch::Tensor mask_at(const RandomPlace& place) {
  const RandomScope scope(place);
  return dropout_mask();
}

TEST(RandomScope, DrawsTheSameAtTheSamePlace) {
  const RandomPlace place{.step_seed = 5, .microbatch = 2, .stage = 1};
  const torch::Tensor mask = mask_at(place);
  torch::randn({7});  // advances the default generator, which is of no concern
  EXPECT_TRUE(torch::equal(mask_at(place), mask));
}

TEST(RandomScope, DrawsOtherNumbersAtEveryOtherPlace) {
  const torch::Tensor mask = mask_at({.step_seed = 5, .microbatch = 2, .stage = 1});
  EXPECT_FALSE(torch::equal(mask_at({.step_seed = 6, .microbatch = 2, .stage = 1}), mask));
  EXPECT_FALSE(torch::equal(mask_at({.step_seed = 5, .microbatch = 1, .stage = 1}), mask));
  EXPECT_FALSE(torch::equal(mask_at({.step_seed = 5, .microbatch = 2, .stage = 0}), mask));
  EXPECT_FALSE(torch::equal(mask_at({.step_seed = 5, .microbatch = 1, .stage = 2}), mask));
}

TEST(RandomScope, LeavesTheDefaultGeneratorAlone) {
  torch::manual_seed(3);
  const torch::Tensor expected = torch::randn({4});
  torch::manual_seed(3);
  mask_at({});
  EXPECT_TRUE(torch::equal(torch::randn({4}), expected));
}

TEST(RandomScope, ObeysAGeneratorThatTheCallerGives) {
  at::Generator generator = torch::make_generator<torch::CPUGeneratorImpl>(9);
  const torch::Tensor expected = torch::rand({4}, generator);
  generator.set_current_seed(9);
  const RandomScope scope({});
  EXPECT_TRUE(torch::equal(torch::rand({4}, generator), expected));
}

TEST(RandomScope, CoversEveryWayToDraw) {
  const torch::Tensor input = torch::full({16}, 0.5);
  const std::vector<std::pair<const char*, std::function<torch::Tensor()>>> draws = {
      {"rand", [] { return torch::rand({16}); }},
      {"randn", [] { return torch::randn({16}); }},
      {"randint", [] { return torch::randint(1000, {16}); }},
      {"randperm", [] { return torch::randperm(64); }},
      {"normal", [&] { return at::normal(input, 2.0); }},
      {"normal_", [] { return torch::empty({16}).normal_(); }},
      {"uniform_", [] { return torch::empty({16}).uniform_(); }},
      {"exponential_", [] { return torch::empty({16}).exponential_(); }},
      {"bernoulli",
       [&] {
         return torch::bernoulli(input.expand({8, 16}));
       }},
      {"multinomial", [&] { return torch::multinomial(torch::ones({64}), 32); }},
      {"poisson", [&] { return torch::poisson(input * 1000); }},
      {"rand_like", [&] { return torch::rand_like(input); }},
      {"randn_like", [&] { return torch::randn_like(input); }},
      {"alpha_dropout", [&] { return torch::alpha_dropout(torch::ones({64}), 0.5, true); }},
      {"feature_dropout",
       [&] {
         return torch::feature_dropout(torch::ones({64, 8, 2}), 0.5, true);
       }},
      {"rrelu", [&] { return torch::rrelu(-torch::ones({64}), 0.1, 0.9, true); }},
      {"native_dropout",
       [&] { return std::get<0>(torch::native_dropout(torch::ones({64}), 0.5, true)); }},
  };
  for (const auto& [name, draw] : draws) {
    torch::manual_seed(1);
    torch::Tensor first;
    {
      const RandomScope scope({.step_seed = 1});
      first = draw();
    }
    torch::manual_seed(2);
    const RandomScope scope({.step_seed = 1});
    EXPECT_TRUE(torch::equal(draw(), first)) << name;
    EXPECT_FALSE(torch::equal(draw(), first)) << name << " does not advance";
  }
}

TEST(RandomScope, IsOfOneThread) {
  const torch::Tensor expected = mask_at({.step_seed = 4});
  const RandomScope scope({.step_seed = 4});
  std::thread other([] {
    EXPECT_EQ(RandomScope::current(), nullptr);
    mask_at({.step_seed = 8});
  });
  other.join();
  EXPECT_TRUE(torch::equal(dropout_mask(), expected));
}

TEST(RandomScope, GoesOnAfterANestedOne) {
  torch::Tensor first;
  torch::Tensor second;
  {
    const RandomScope scope({.step_seed = 4});
    first = dropout_mask();
    second = dropout_mask();
  }
  const RandomScope scope({.step_seed = 4});
  EXPECT_TRUE(torch::equal(dropout_mask(), first));
  EXPECT_TRUE(torch::equal(mask_at({.step_seed = 4}), first)) << "the nested one starts anew";
  EXPECT_TRUE(torch::equal(dropout_mask(), second));
  EXPECT_EQ(RandomScope::current(), &scope);
}

TEST(RandomScope, SitesDoNotDependOnTheStage) {
  torch::Tensor expected;
  {
    RandomScope scope({.step_seed = 4, .microbatch = 1, .stage = 0});
    scope.seed_site(3);
    expected = dropout_mask();
  }
  RandomScope scope({.step_seed = 4, .microbatch = 1, .stage = 2});
  dropout_mask();
  scope.seed_site(3);
  EXPECT_TRUE(torch::equal(dropout_mask(), expected));
  scope.seed_site(4);
  EXPECT_FALSE(torch::equal(dropout_mask(), expected));
}

TEST(RandomScope, NumbersDrawsLikeSites) {
  std::vector<torch::Tensor> expected;
  {
    RandomScope scope({.step_seed = 4, .microbatch = 1});
    for (const std::uint64_t site : {0U, 1U, 2U}) {
      scope.seed_site(site);
      expected.push_back(dropout_mask());
    }
  }
  const RandomScope scope({.step_seed = 4, .microbatch = 1}, RandomStream::PerDraw);
  for (const torch::Tensor& mask : expected) EXPECT_TRUE(torch::equal(dropout_mask(), mask));
}

TEST(RandomScope, KeepsAutogradAsItIs) {
  const torch::Tensor input = torch::ones({64}, torch::requires_grad());
  const RandomScope scope({});
  const torch::Tensor output = torch::dropout(input, 0.5, true);
  output.sum().backward();
  EXPECT_TRUE(torch::equal(input.grad(), output.detach()));
}

TEST(RandomScope, LeavesOtherDevicesAlone) {
  const RandomScope scope({});
  EXPECT_EQ(torch::randn({3}, torch::kMeta).device().type(), torch::kMeta);
  EXPECT_EQ(torch::empty({3}, torch::kMeta).bernoulli_(0.5).device().type(), torch::kMeta);
}

TEST(StepSeed, FollowsTheSeedOfTheDefaultGenerator) {
  torch::manual_seed(11);
  const std::uint64_t seed = step_seed(2);
  torch::randn({3});
  EXPECT_EQ(step_seed(2), seed) << "drawing does not change it";
  EXPECT_NE(step_seed(3), seed);
  torch::manual_seed(12);
  EXPECT_NE(step_seed(2), seed);
}

}  // namespace
}  // namespace penstock
