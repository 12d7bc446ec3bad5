#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/stage/shared_claims.h"
#include "penstock/run/stage/shared_gradients.h"
#include "tests/run/graph/graphs.h"
#include "tests/run/support/baseline.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/thread_group.h"

// A parameter that several stages use is trained as in one process, to the bit.
namespace penstock {
namespace {

constexpr std::int64_t kVocabulary = 11;
constexpr std::int64_t kWidth = 6;

// Four stages; the table is used once by the first, twice by the third, once by the last.
struct TiedModel {
  torch::Tensor table = torch::randn({kVocabulary, kWidth});
  torch::Tensor weight = torch::randn({kWidth, kWidth}).requires_grad_();

  explicit TiedModel(bool is_frozen = false) { table.set_requires_grad(!is_frozen); }

  torch::Tensor forward(const torch::Tensor& tokens) const {
    torch::Tensor hidden = torch::embedding(table, tokens);
    hidden = torch::tanh(hidden.matmul(weight));
    hidden = hidden.matmul(table.t()).softmax(-1).matmul(table);
    return hidden.matmul(table.t());
  }
  std::vector<torch::Tensor> parameters() const { return {table, weight}; }
};

StageList stages_of(const TiedModel& model) {
  StageGraph first = stage_graph(R"(
graph(%tokens : Tensor, %table : Tensor):
  %minus : int = prim::Constant[value=-1]()
  %no : bool = prim::Constant[value=0]()
  %hidden : Tensor = aten::embedding(%table, %tokens, %minus, %no, %no)
  return (%hidden)
)",
                                 {"tokens"});
  first.shared = {{"table", model.table}};
  StageGraph second = stage_graph(R"(
graph(%hidden : Tensor, %weight : Tensor):
  %product : Tensor = aten::matmul(%hidden, %weight)
  %result : Tensor = aten::tanh(%product)
  return (%result)
)",
                                  {"hidden"});
  second.tensors = {{"weight", model.weight}};
  StageGraph third = stage_graph(R"(
graph(%hidden : Tensor, %table.1 : Tensor, %table.2 : Tensor):
  %last : int = prim::Constant[value=-1]()
  %none : NoneType = prim::Constant()
  %keys : Tensor = aten::t(%table.1)
  %scores : Tensor = aten::matmul(%hidden, %keys)
  %shares : Tensor = aten::softmax(%scores, %last, %none)
  %result : Tensor = aten::matmul(%shares, %table.2)
  return (%result)
)",
                                 {"hidden"});
  third.shared = {{"table", model.table}, {"table", model.table}};
  StageGraph last = stage_graph(R"(
graph(%hidden : Tensor, %table : Tensor):
  %transposed : Tensor = aten::t(%table)
  %result : Tensor = aten::matmul(%hidden, %transposed)
  return (%result)
)",
                                {"hidden"});
  last.shared = {{"table", model.table}};
  const auto claims = std::make_shared<SharedClaims>();
  claims->set_uses({{0, "table"}, {2, "table"}, {2, "table"}, {3, "table"}});
  StageList stages;
  for (StageGraph* stage : {&first, &second, &third, &last}) {
    stage->claims = claims;
    stages.push_back(std::make_shared<PipelineStage>(
        make_graph_module(std::move(*stage)),
        StagePosition{.index = static_cast<int>(stages.size()), .num_stages = 4}));
  }
  return stages;
}

torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(output.reshape({-1, kVocabulary}),
                                              target.reshape({-1}));
}

torch::Tensor tokens(int rows) {
  return torch::randint(kVocabulary, {rows, 3}, torch::kLong);
}

struct SharedCase {
  const char* schedule;
  int num_ranks;
};

void PrintTo(const SharedCase& shape, std::ostream* out) {
  *out << shape.schedule << " on " << shape.num_ranks;
}

class SharedParameters : public ::testing::TestWithParam<SharedCase> {};

TEST_P(SharedParameters, TrainAsInOneProcess) {
  const SharedCase& shape = GetParam();
  torch::manual_seed(5);
  const TiedModel model;
  torch::manual_seed(5);
  const TiedModel baseline;
  constexpr int kMicrobatches = 5;
  PipelineSchedule pipeline(stages_of(model),
                            make_schedule(shape.schedule, {.num_ranks = shape.num_ranks,
                                                           .num_microbatches = kMicrobatches,
                                                           .stages_per_rank = 4 / shape.num_ranks}),
                            {.num_microbatches = kMicrobatches, .loss = cross_entropy});
  torch::optim::Adam optimizer(model.parameters());
  torch::optim::Adam baseline_optimizer(baseline.parameters());
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const torch::Tensor inputs = tokens(2 * kMicrobatches);
    const torch::Tensor targets = tokens(2 * kMicrobatches);
    pipeline.step({inputs}, {.target = targets});
    const auto input_parts = inputs.tensor_split(kMicrobatches);
    const auto target_parts = targets.tensor_split(kMicrobatches);
    for (std::size_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      const torch::Tensor loss =
          cross_entropy(baseline.forward(input_parts[microbatch]), target_parts[microbatch]);
      loss.backward(torch::full_like(loss, 1.0 / kMicrobatches));
    }
    expect_equal(gradients_of(model.parameters()), gradients_of(baseline.parameters()), "gradient");
    optimizer.step();
    baseline_optimizer.step();
    if (step % 2 == 1) continue;  // accumulates in every other step
    optimizer.zero_grad();
    baseline_optimizer.zero_grad();
  }
  expect_equal(model.parameters(), baseline.parameters(), "parameter");
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, SharedParameters,
    ::testing::Values(SharedCase{"GPipe", 4}, SharedCase{"1F1B", 4},
                      SharedCase{"Interleaved1F1B", 1}, SharedCase{"Interleaved1F1B", 2},
                      SharedCase{"ZBVZeroBubble", 2}, SharedCase{"DualPipeV", 2},
                      SharedCase{"InterleavedZeroBubble", 2}, SharedCase{"ZB-H1", 4}),
    [](const auto& instance) {
      std::string name = instance.param.schedule;
      std::erase_if(
          name, [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; });
      return name + "_p" + std::to_string(instance.param.num_ranks);
    });

// Two parts of a pipeline that have copies of the model, as processes have, here on threads.
void expect_copies_stay_equal(const std::string& schedule, int num_ranks,
                              const std::vector<std::vector<int>>& parts) {
  constexpr int kMicrobatches = 3;
  const Schedule order = make_schedule(schedule, {.num_ranks = num_ranks,
                                                  .num_microbatches = kMicrobatches,
                                                  .stages_per_rank = 4 / num_ranks});
  const Placement placement = placement_of(order, 4);
  const auto hub =
      std::make_shared<InProcessHub>(num_ranks, Extent{4 + 3 * num_ranks, kMicrobatches},
                                     wait_policy_for(2, std::chrono::seconds(60)));
  torch::manual_seed(8);
  const TiedModel baseline;
  std::vector<torch::Tensor> batches;
  std::vector<TiedModel> copies(parts.size());
  for (TiedModel& copy : copies) {
    copy.table = baseline.table.detach().clone().requires_grad_();
    copy.weight = baseline.weight.detach().clone().requires_grad_();
  }
  for (int step = 0; step < 6; ++step) batches.push_back(tokens(2 * kMicrobatches));

  std::vector<std::thread> processes;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    processes.emplace_back([&, part] {
      StageList local;
      for (const auto& stage : stages_of(copies[part])) {
        const std::vector<int>& ranks = parts[part];
        const int rank = placement.rank_of(stage->index());
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) local.push_back(stage);
      }
      PipelineSchedule pipeline(
          local, order,
          {.num_microbatches = kMicrobatches,
           .group = std::make_shared<ThreadGroup>(hub, num_ranks, parts[part]),
           .loss = cross_entropy});
      torch::optim::Adam optimizer(pipeline.parameters());
      for (std::size_t step = 0; step < batches.size(); step += 2) {
        optimizer.zero_grad();
        pipeline.step({batches[step]}, {.target = batches[step + 1]});
        optimizer.step();
      }
    });
  }
  for (std::thread& process : processes) process.join();

  torch::optim::Adam optimizer(baseline.parameters());
  for (std::size_t step = 0; step < batches.size(); step += 2) {
    optimizer.zero_grad();
    const auto inputs = batches[step].tensor_split(kMicrobatches);
    const auto targets = batches[step + 1].tensor_split(kMicrobatches);
    for (std::size_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      const torch::Tensor loss =
          cross_entropy(baseline.forward(inputs[microbatch]), targets[microbatch]);
      loss.backward(torch::full_like(loss, 1.0 / kMicrobatches));
    }
    optimizer.step();
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (parts[part] == std::vector<int>{placement.rank_of(1)} && num_ranks == 4)
      continue;  // no table
    expect_equal({copies[part].table}, {baseline.table}, "copy");
  }
}

TEST(SharedParametersOf, ProcessesStayCopiesOfEachOther) {
  expect_copies_stay_equal("1F1B", 4, {{0}, {1, 2, 3}});
  expect_copies_stay_equal("1F1B", 4, {{0, 2}, {1, 3}});
  expect_copies_stay_equal("ZBVZeroBubble", 2, {{0}, {1}});
  expect_copies_stay_equal("GPipe", 4, {{0}, {1}, {2}, {3}});
}

ScheduleOptions options(int num_microbatches = 2) {
  return {.num_microbatches = num_microbatches, .loss = cross_entropy};
}

TEST(SharedParametersOf, BelongToTheFirstStageThatWasMade) {
  const TiedModel model;
  const StageList stages = stages_of(model);
  const auto has_table = [&](int stage) {
    for (const torch::Tensor& tensor : stages[static_cast<std::size_t>(stage)]->parameters()) {
      if (tensor.is_same(model.table)) return true;
    }
    return false;
  };
  EXPECT_TRUE(has_table(0));
  EXPECT_FALSE(has_table(2));
  EXPECT_FALSE(has_table(3));
  EXPECT_EQ(stages[3]->module().named_parameters().size(), 1) << "names are listed by every stage";
  const Schedule1F1B pipeline(stages, options());
  EXPECT_EQ(pipeline.parameters().size(), 2);
}

TEST(SharedParametersOf, AreClaimedAnewWhenTheirOwnerIsGone) {
  const TiedModel model;
  StageList stages = stages_of(model);
  EXPECT_TRUE(stages[3]->parameters().empty());
  stages[0].reset();
  ASSERT_EQ(stages[3]->parameters().size(), 1);
  EXPECT_TRUE(stages[2]->parameters().empty());
}

TEST(SharedParametersOf, CallHooksOnceForTheSumOfAMicrobatch) {
  torch::manual_seed(6);
  const TiedModel model;
  torch::manual_seed(6);
  const TiedModel baseline;
  std::vector<torch::Tensor> seen;
  std::vector<torch::Tensor> expected;
  model.table.register_hook([&](const torch::Tensor& gradient) {
    seen.push_back(gradient.clone());
    return gradient * 2;
  });
  baseline.table.register_hook([&](const torch::Tensor& gradient) {
    expected.push_back(gradient.clone());
    return gradient * 2;
  });
  Schedule1F1B pipeline(stages_of(model), options(1));
  const torch::Tensor inputs = tokens(4);
  const torch::Tensor targets = tokens(4);
  pipeline.step({inputs}, {.target = targets});
  cross_entropy(baseline.forward(inputs), targets).backward();
  expect_equal(seen, expected, "what the hook sees");
  expect_equal(gradients_of(model.parameters()), gradients_of(baseline.parameters()), "gradient");
}

TEST(SharedParametersOf, MayBeFrozen) {
  const TiedModel model(true);
  ScheduleZBVZeroBubble pipeline(stages_of(model), options());
  pipeline.step({tokens(4)}, {.target = tokens(4)});
  EXPECT_FALSE(model.table.grad().defined());
  EXPECT_TRUE(model.weight.grad().defined());
}

TEST(SharedParametersOf, AreTheTensorsThemselvesInEvaluation) {
  const TiedModel model;
  Schedule1F1B pipeline(stages_of(model), options());
  const torch::Tensor inputs = tokens(4);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(pipeline.eval({inputs}).output.toTensor(), model.forward(inputs)));
}

TEST(SharedParametersOf, KeepNothingAfterAStep) {
  const TiedModel model;
  Schedule1F1B pipeline(stages_of(model), options());
  pipeline.step({tokens(4)}, {.target = tokens(4)});
  const auto storage_uses = model.table.storage().use_count();
  pipeline.step({tokens(4)}, {.target = tokens(4)});
  EXPECT_EQ(model.table.storage().use_count(), storage_uses);
  EXPECT_EQ(storage_uses, TiedModel().table.storage().use_count()) << "no alias is left";
}

TEST(SharedParametersOf, OfAStageThatUsesThemWithoutGradient) {
  torch::Tensor table = torch::ones({2}, torch::requires_grad());
  const auto claims = std::make_shared<SharedClaims>();
  StageGraph first = stage_graph(R"(
graph(%x : Tensor, %table : Tensor):
  %constant : Tensor = aten::detach(%table)
  %y : Tensor = aten::mul(%x, %constant)
  return (%y)
)",
                                 {"x"});
  StageGraph second = stage_graph(R"(
graph(%x : Tensor, %table : Tensor):
  %y : Tensor = aten::mul(%x, %table)
  return (%y)
)",
                                  {"x"});
  StageList stages;
  for (StageGraph* stage : {&first, &second}) {
    stage->shared = {{"table", table}};
    stage->claims = claims;
    stages.push_back(std::make_shared<PipelineStage>(
        make_graph_module(std::move(*stage)),
        StagePosition{.index = static_cast<int>(stages.size()), .num_stages = 2}));
  }
  Schedule1F1B pipeline(stages, {.num_microbatches = 1,
                                 .loss = [](const torch::Tensor& output) { return output.sum(); }});
  pipeline.step({torch::full({1, 2}, 3.0)});
  EXPECT_TRUE(torch::equal(table.grad(), torch::full({2}, 3.0)));
}

TEST(SharedGradients, RefusesTwoTensorsOfOneName) {
  const auto order = [](int) { return std::vector<int>{0}; };
  EXPECT_EQ(
      message_of([&] {
        SharedGradients({{0, "table", torch::ones({1})}, {2, "table", torch::ones({1})}}, order);
      }),
      "stage 2 has another tensor for the shared parameter \"table\" than the stages before "
      "it; take all stages from one model");
}

TEST(SharedGradients, WaitsForTheMicrobatchesBefore) {
  const torch::Tensor table = torch::zeros({1}, torch::requires_grad());
  SharedGradients gradients({{0, "table", table}, {1, "table", table}}, [](int) {
    return std::vector<int>{1, 0};
  });
  const auto add = [&](int stage, int microbatch, torch::Tensor gradient) {
    gradients.add(stage, microbatch, {&gradient, 1});
  };
  add(0, 0, torch::full({1}, 1.0));
  add(1, 0, torch::full({1}, 2.0));
  EXPECT_FALSE(table.grad().defined()) << "microbatch 1 comes first";
  add(1, 1, torch::full({1}, 4.0));
  EXPECT_FALSE(table.grad().defined());
  add(0, 1, torch::Tensor());
  EXPECT_EQ(table.grad().item<float>(), 7);
  gradients.begin_step();
  add(0, 1, torch::Tensor());
  add(1, 1, torch::Tensor());
  EXPECT_EQ(table.grad().item<float>(), 7) << "nothing to add";
}

TEST(SharedGradients, AddsFromTheLastUseToTheFirst) {
  const torch::Tensor table = torch::zeros({1}, torch::requires_grad());
  SharedGradients gradients({{0, "table", table}, {1, "table", table}, {1, "table", table}},
                            [](int) { return std::vector<int>{0}; });
  std::vector<torch::Tensor> first = {torch::full({1}, 1.0F)};
  std::vector<torch::Tensor> second = {torch::full({1}, 1e8F), torch::full({1}, -1e8F)};
  gradients.add(0, 0, first);
  gradients.add(1, 0, second);
  EXPECT_EQ(table.grad().item<float>(), 1) << "(-1e8 + 1e8) + 1; the other way round it is 0";
}

}  // namespace
}  // namespace penstock
