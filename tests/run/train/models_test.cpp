#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/run/train/feed_forward_models.h"
#include "penstock/run/train/gpt.h"
#include "penstock/run/train/run_model.h"
#include "penstock/run/train/tensor_data.h"
#include "penstock/run/train/text_generation.h"
#include "penstock/run/train/training_loss.h"
#include "tests/run/support/message_of.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

torch::Tensor run_model(const TraceSource& model, const torch::Tensor& input) {
  return model.forward({input}, {}).toTensor();
}

constexpr GptOptions kSmallGpt{.layers = 2, .width = 8, .heads = 2, .context = 5, .vocabulary = 11};

TEST(GptModel, DoesNotLookAhead) {
  const TraceSource model = make_gpt(kSmallGpt);
  const torch::Tensor tokens = torch::randint(11, {2, 5}, torch::kLong);
  torch::Tensor changed = tokens.clone();
  changed.slice(1, 3, 5).fill_(0);
  tokens.slice(1, 3, 5).fill_(1);
  const torch::Tensor before = run_model(model, tokens);
  const torch::Tensor after = run_model(model, changed);
  EXPECT_EQ(before.sizes(), torch::IntArrayRef({2, 5, 11}));
  EXPECT_TRUE(before.slice(1, 0, 3).equal(after.slice(1, 0, 3)));
  EXPECT_FALSE(before.slice(1, 3, 5).equal(after.slice(1, 3, 5)));
}

TEST(GptModel, MayTieItsEmbeddingToItsHead) {
  GptOptions untied = kSmallGpt;
  untied.is_tied = false;
  const auto names = [](const TraceSource& model) {
    return model.module->named_parameters().keys();
  };
  EXPECT_EQ(names(make_gpt(untied)).size(), names(make_gpt(kSmallGpt)).size() + 1);
  EXPECT_THAT(names(make_gpt(untied)), ::testing::Contains("head.weight"));
}

TEST(GptModel, DropsOutInTrainingOnly) {
  GptOptions options = kSmallGpt;
  options.dropout = 0.5;
  const TraceSource model = make_gpt(options);
  const torch::Tensor tokens = torch::zeros({1, 5}, torch::kLong);
  EXPECT_FALSE(run_model(model, tokens).equal(run_model(model, tokens)));
  model.module->eval();
  EXPECT_TRUE(run_model(model, tokens).equal(run_model(model, tokens)));
}

TEST(Models, NameTheSizeThatIsWrong) {
  EXPECT_EQ(message_of([] { make_gpt({.width = 10, .heads = 4}); }),
            "a width of 10 cannot be divided among 4 heads; the width must be a multiple of the "
            "heads");
  EXPECT_EQ(message_of([] { make_gpt({.layers = 0}); }),
            "the layers of a model must be at least 1, not 0");
  EXPECT_EQ(message_of([] { make_mlp({.dropout = 1}); }),
            "the dropout of a model must be from 0 up to below 1, not 1");
  EXPECT_EQ(message_of([] { make_resnet({.classes = 0}); }),
            "the classes of a model must be at least 1, not 0");
}

TEST(Resnet, HalvesPicturesOnItsWay) {
  const TraceSource model = make_resnet({.channels = 1, .classes = 4, .layers = 3, .width = 2});
  EXPECT_EQ(run_model(model, torch::randn({3, 1, 12, 12})).sizes(), torch::IntArrayRef({3, 4}));
  const auto parameters = model.module->named_parameters();
  EXPECT_EQ(parameters["blocks.2.second.weight"].size(0), 8);
}

TEST(RunModel, FitsTheModelToItsData) {
  const auto points = make_points(1);
  const RunModel mlp = make_run_model({.name = "mlp", .layers = 2, .width = 8}, *points, 4, 1);
  EXPECT_EQ(mlp.num_parameters, 16 * 8 + 8 + 8 * 4 + 4);
  EXPECT_THAT(
      message_of([&] { make_run_model({.name = "gpt"}, *points, 4, 1); }),
      HasSubstr("a model \"gpt\" needs text or tokens, but the data is 1024 made-up points"));
  EXPECT_THAT(message_of([&] { make_run_model({.name = "resnet"}, *points, 4, 1); }),
              HasSubstr("needs pictures [samples, channels, height, width] and classes"));
  EXPECT_THAT(message_of([&] { make_run_model({.name = "gtp"}, *points, 4, 1); }),
              HasSubstr("unknown model \"gtp\""));
  EXPECT_THAT(message_of([&] { make_run_model({.name = "resnte"}, *points, 4, 1); }),
              HasSubstr("did you mean \"resnet\"?"));
  EXPECT_THAT(message_of([&] { read_data({}, {.name = "gpt"}, 1); }), HasSubstr("needs data"));
}

TEST(RunModel, IsAFunctionOfTheSeed) {
  const auto points = make_points(1);
  const auto weight = [&](std::uint64_t seed) {
    return make_run_model({.name = "mlp"}, *points, 4, seed).captured.tensors.front().tensor;
  };
  EXPECT_TRUE(weight(5).equal(weight(5)));
  EXPECT_FALSE(weight(5).equal(weight(6)));
}

TEST(TrainingLoss, GoesByTheTargets) {
  const torch::Tensor scores = torch::randn({2, 3, 5});
  const torch::Tensor classes = torch::randint(5, {2, 3}, torch::kLong);
  EXPECT_TRUE(make_loss("auto", classes)(scores, classes, {})
                  .equal(torch::cross_entropy_loss(scores.view({6, 5}), classes.view({6}))));
  const torch::Tensor numbers = torch::randn({2, 3, 5});
  EXPECT_TRUE(
      make_loss("auto", numbers)(scores, numbers, {}).equal(torch::mse_loss(scores, numbers)));
  EXPECT_THAT(message_of([&] { make_loss("mes", numbers); }), HasSubstr("did you mean \"mse\"?"));
  EXPECT_THAT(message_of([&] { make_loss("mse", classes); }),
              HasSubstr("these are classes; use cross-entropy"));
}

TEST(TrainingLoss, ComparesEachOutputWithItsTarget) {
  const torch::Tensor outputs = torch::randn({4, 1});
  const torch::Tensor targets = torch::randn({4});
  const LossFunction loss = make_loss("mse", targets);
  EXPECT_TRUE(loss(outputs, targets, {}).equal(torch::mse_loss(outputs.view({4}), targets)));
  EXPECT_EQ(message_of([&] {
              loss(torch::randn({4, 3}), targets, {});
            }),
            "the mean square compares number by number, but outputs are [4, 3] and targets [4]; "
            "give the targets the shape of the outputs");
  EXPECT_THAT(message_of([&] {
                loss(outputs, torch::randn({4, 3}), {});
              }),
              HasSubstr("outputs are [4, 1] and targets [4, 3]"));
}

TEST(RunModel, TakesOneNumberPerSampleAsTarget) {
  const TensorData data({.inputs = torch::randn({6, 3}), .targets = torch::randn({6})}, "numbers");
  const RunModel model = make_run_model({.name = "mlp", .layers = 1}, data, 2, 1);
  EXPECT_EQ(model.num_parameters, 3 + 1);
}

// Always likes the number after the last token best.
torch::Tensor count_on(const torch::Tensor& tokens) {
  torch::Tensor scores = torch::zeros({tokens.size(1), 10});
  for (std::int64_t place = 0; place < tokens.size(1); ++place) {
    scores[place][(tokens[0][place].item<std::int64_t>() + 1) % 10] = 4;
  }
  return scores;
}

TEST(GenerateTokens, TakesTheLikeliestAtTemperatureZero) {
  EXPECT_THAT(generate_tokens({3}, count_on, {.context = 2, .num_tokens = 4, .temperature = 0}),
              ElementsAre(3, 4, 5, 6, 7));
}

TEST(GenerateTokens, DependsOnTheSeedAlone) {
  const auto sample = [](std::uint64_t seed) {
    return generate_tokens({3, 4, 5}, count_on,
                           {.context = 2, .num_tokens = 30, .temperature = 1, .seed = seed});
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
  EXPECT_THAT(sample(1), ::testing::Each(::testing::Lt(10)));
}

TEST(PrintableText, HidesWhatNoTerminalShows) {
  EXPECT_EQ(printable_text("a\tb\n\x1b[0m"), "a\tb\n?[0m");
  EXPECT_EQ(printable_text("\xc3\xa4\xff\xc3"), "\xc3\xa4??");
  EXPECT_EQ(text_of_tokens(tokens_of_text("\xff z")), "\xff z");
}

}  // namespace
}  // namespace penstock
