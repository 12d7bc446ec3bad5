#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/checkpoint/checkpoint_reader.h"
#include "penstock/run/train/run_figures.h"
#include "penstock/run/train/tensor_data.h"
#include "penstock/run/train/text_generation.h"
#include "penstock/run/train/token_data.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/small_run.h"
#include "tests/support/temporary_folder.h"

// Trainers of several pipelines as threads; tests/run/processes/trainer_test.cpp has processes.
namespace penstock {
namespace {

using ::testing::HasSubstr;

SmallRunOptions tied_replicas(int num_replicas, const std::string& schedule, int num_ranks,
                              bool is_sharded = false) {
  return {.schedule = schedule,
          .num_ranks = num_ranks,
          .num_replicas = num_replicas,
          .is_sharded = is_sharded};
}
// Of which every stage can be sharded.
SmallRunOptions replicas(int num_replicas, const std::string& schedule, int num_ranks,
                         bool is_sharded = false) {
  SmallRunOptions options = tied_replicas(num_replicas, schedule, num_ranks, is_sharded);
  options.model.is_tied = false;
  return options;
}

// By name: the files of a checkpoint have an order that means nothing.
std::map<std::string, StateValue> by_name(const std::vector<StateEntry>& entries) {
  std::map<std::string, StateValue> values;
  for (const StateEntry& entry : entries) values.emplace(entry.name, entry.value);
  return values;
}

// A checkpoint as values: tensors and the state of the optimizer.
void expect_same_checkpoints(const std::filesystem::path& one, const std::filesystem::path& two) {
  CheckpointReader left(one);
  CheckpointReader right(two);
  EXPECT_EQ(left.entries(), right.entries());
  EXPECT_EQ(left.manifest().aliases, right.manifest().aliases);
  EXPECT_EQ(left.manifest().scalars, right.manifest().scalars);
  EXPECT_EQ(left.manifest().position, right.manifest().position);
  for (const std::string& entry : left.entries()) {
    EXPECT_TRUE(left.read(entry).equal(right.read(entry))) << entry;
    const auto expected = by_name(right.optimizer_state(entry));
    const auto found = by_name(left.optimizer_state(entry));
    ASSERT_EQ(found.size(), expected.size()) << entry;
    for (const auto& [name, value] : found) {
      ASSERT_TRUE(expected.contains(name)) << entry << "/" << name;
      const auto* tensor = std::get_if<at::Tensor>(&value);
      if (tensor == nullptr) continue;  // a scalar of the manifest
      EXPECT_TRUE(tensor->equal(std::get<at::Tensor>(expected.at(name)))) << entry << "/" << name;
    }
  }
}

TEST(TrainerReplicas, HaveTheSameLossesUnderEveryScheduleAndSharded) {
  const std::vector<double> expected = SmallRun(replicas(2, "1F1B", 1)).losses_of(4);
  EXPECT_LT(expected.back(), expected.front());
  EXPECT_EQ(SmallRun(replicas(2, "1F1B", 1, true)).losses_of(4), expected);
  EXPECT_EQ(SmallRun(replicas(2, "GPipe", 2)).losses_of(4), expected);
  EXPECT_EQ(SmallRun(replicas(2, "ZBV", 2)).losses_of(4), expected);
  EXPECT_EQ(SmallRun(replicas(2, "ZBV", 2, true)).losses_of(4), expected);
  EXPECT_EQ(SmallRun(replicas(2, "Interleaved1F1B", 2, true)).losses_of(4), expected);
  EXPECT_EQ(SmallRun(replicas(2, "search", 2)).losses_of(4), expected);
  EXPECT_EQ(SmallRun(tied_replicas(2, "ZBV", 2)).losses_of(4),
            SmallRun(tied_replicas(2, "1F1B", 1, true)).losses_of(4));
  // One pipeline adds the gradients in another order, which shows after the first step at most.
  const std::vector<double> alone = SmallRun(replicas(1, "1F1B", 1)).losses_of(4);
  EXPECT_EQ(alone.front(), expected.front());
  for (std::size_t step = 0; step < alone.size(); ++step) {
    EXPECT_NEAR(alone[step], expected[step], 1e-4) << step;
  }
}

// g0 + g1 + ... is then the order of one pipeline, too.
TEST(TrainerReplicas, AreOnePipelineToTheBitIfEachHasOneMicrobatch) {
  const std::vector<double> expected = SmallRun(replicas(1, "1F1B", 2)).losses_of(6);
  EXPECT_EQ(SmallRun(replicas(4, "1F1B", 2)).losses_of(6), expected);
  EXPECT_EQ(SmallRun(replicas(4, "1F1B", 1, true)).losses_of(6), expected);
  EXPECT_EQ(SmallRun(replicas(4, "ZBV", 2, true)).losses_of(6), expected);
  EXPECT_EQ(SmallRun(tied_replicas(4, "ZBV", 2)).losses_of(6),
            SmallRun(tied_replicas(1, "1F1B", 1)).losses_of(6));
}

TEST(TrainerReplicas, SaveACheckpointThatKnowsNoReplicas) {
  const testing::TemporaryFolder folder;
  // Batch norm has buffers, which each replica has for itself.
  const ModelOptions resnet{.name = "resnet", .layers = 3, .width = 4};
  SmallRunOptions sharded = replicas(2, "ZBV", 2, true);
  SmallRunOptions alone = replicas(1, "1F1B", 1);
  for (SmallRunOptions* options : {&sharded, &alone}) {
    options->model = resnet;
    options->data = make_stripes(1);
  }
  SmallRun first(sharded);
  EXPECT_GT(first.pipeline->num_sharded_stages(), 0);
  first.losses_of(3);
  const auto saved = first.trainer->save(folder.path("sharded"), 0, "{}");
  SmallRun second(alone);
  second.trainer->resume(saved);
  const auto again = second.trainer->save(folder.path("alone"), 0, "{}");
  expect_same_checkpoints(again, saved);
  SmallRun third(sharded);
  third.trainer->resume(again);
  expect_same_checkpoints(third.trainer->save(folder.path("again"), 0, "{}"), saved);
}

TEST(TrainerReplicas, GoOnWithoutReplicasAndBackAsIfNothingHadHappened) {
  const testing::TemporaryFolder folder;
  const std::vector<double> expected = SmallRun(replicas(1, "1F1B", 1)).losses_of(6);
  const auto part = [&](int begin, int end) {
    return std::vector<double>(expected.begin() + begin, expected.begin() + end);
  };
  const SmallRunOptions sharded = replicas(4, "ZBV", 2, true);
  SmallRun first(sharded);
  EXPECT_EQ(first.losses_of(2), part(0, 2));
  SmallRun second(replicas(1, "1F1B", 1));
  second.trainer->resume(first.trainer->save(folder.path(), 0, "{}"));
  EXPECT_EQ(second.losses_of(2), part(2, 4));
  SmallRun third(sharded);
  third.trainer->resume(second.trainer->save(folder.path(), 0, "{}"));
  EXPECT_EQ(third.trainer->num_steps_done(), 4);
  EXPECT_EQ(third.losses_of(2), part(4, 6));
}

TEST(TrainerReplicas, KeepAPartOfTheMemoryEachIfSharded) {
  SmallRun run(replicas(2, "1F1B", 2, true));
  EXPECT_GT(run.pipeline->num_sharded_stages(), 0);
  run.losses_of(2);
  const RunFigures figures = gather_figures(*run.pipeline, run.trainer->optimizer());
  std::int64_t parameter_bytes = 0;
  for (const RankMemory& memory : figures.ranks) {
    parameter_bytes += memory.parameter_bytes;
    EXPECT_EQ(memory.optimizer_bytes, 2 * memory.parameter_bytes);
    EXPECT_EQ(memory.gathered_bytes > 0, memory.parameter_bytes > 0);
  }
  // Both replicas together have everything once.
  for (const at::Tensor& slice : run.pipeline->schedule(1).parameters()) {
    parameter_bytes += static_cast<std::int64_t>(slice.nbytes());
  }
  EXPECT_EQ(parameter_bytes, 4 * run.model.num_parameters);
}

TEST(TrainerReplicas, WriteTheSameText) {
  torch::Tensor bytes = torch::arange(300, torch::kInt).remainder(50).add(60).to(torch::kByte);
  const auto data = std::make_shared<TokenData>(
      bytes, TokenDataOptions{.context = 6, .vocabulary = 256}, "bytes");
  const auto text_of = [&](SmallRunOptions options) {
    options.data = data;
    SmallRun run(options);
    run.losses_of(1);
    run.pipeline->train(false);
    return generate_text(*run.pipeline, "ab", {.context = 6, .num_tokens = 12, .seed = 4});
  };
  const std::string expected = text_of(replicas(2, "1F1B", 1));
  EXPECT_EQ(expected.size(), 14U);
  EXPECT_EQ(text_of(replicas(2, "1F1B", 1, true)), expected);
  EXPECT_EQ(text_of(replicas(2, "ZBV", 2, true)), expected);
}

TEST(TrainerReplicas, RefuseWhatCannotBeDivided) {
  // Both stages use the embedding.
  EXPECT_EQ(message_of([] { SmallRun(tied_replicas(2, "1F1B", 2, true)); }),
            "no stage can be sharded: all parameters are in stages that share one, such as "
            "\"embedding.weight\"; use more ranks, give the head of a gpt weights of its own "
            "(--untied), or train without sharding");
  EXPECT_THAT(message_of([] { SmallRun run(replicas(3, "1F1B", 1)); }),
              HasSubstr("a batch of 8 samples cannot be divided among 3 replicas"));
}

}  // namespace
}  // namespace penstock
