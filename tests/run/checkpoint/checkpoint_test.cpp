#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/checkpoint_folder.h"
#include "penstock/run/checkpoint/checkpoint_reader.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/checkpoint/manifest.h"
#include "penstock/run/checkpoint/save_checkpoint.h"
#include "penstock/run/libtorch/compat.h"
#include "penstock/run/world/world.h"
#include "tests/run/checkpoint/small_net.h"
#include "tests/run/checkpoint/state_values.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/rank_processes.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using penstock::testing::names_in;
using penstock::testing::read_file;
using penstock::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Checkpoint, BringsBackTensorsOptimizerAndPosition) {
  const TemporaryFolder folder;
  Net net(1);
  torch::optim::AdamW optimizer(net.parameters());
  for (int step = 0; step < 2; ++step) train(net, optimizer, step);
  const TrainingPosition position{
      .step = 2, .seed = 18446744073709551615U, .data = R"({"shard":3,"offset":[1,2.5]})"};
  const auto path = save_checkpoint(folder.path("run"), {rank_state(net, &optimizer)}, position);
  EXPECT_EQ(path, folder.path("run") + "/step-00000002");
  EXPECT_THAT(names_in(path), ElementsAre("manifest.json", "model-00001-of-00001.safetensors",
                                          "optimizer-00001-of-00001.safetensors"));
  const auto saved = values_of({rank_state(net, &optimizer)});
  train(net, optimizer, 2);
  const auto expected = values_of({rank_state(net, &optimizer)});

  Net other(2);
  torch::optim::AdamW other_optimizer(other.parameters());
  train(other, other_optimizer, 7);  // so that there is something to replace
  EXPECT_EQ(
      load_checkpoint(path, {rank_state(other, &other_optimizer)}, {.needs_all = true}),
      (TrainingPosition{
          .step = 2, .seed = 18446744073709551615U, .data = R"({"offset":[1,2.5],"shard":3})"}));
  expect_same(values_of({rank_state(other, &other_optimizer)}), saved);
  train(other, other_optimizer, 2);
  expect_same(values_of({rank_state(other, &other_optimizer)}), expected);
}

TEST(Checkpoint, OfANewOptimizerMakesAUsedOneNew) {
  const TemporaryFolder folder;
  Net net(1);
  torch::optim::AdamW optimizer(net.parameters());
  const auto path = save_checkpoint(folder.path("run"), {rank_state(net, &optimizer)}, {});
  const auto expected = values_of({rank_state(net, &optimizer)});
  train(net, optimizer, 0);
  load_checkpoint(path, {rank_state(net, &optimizer)});
  expect_same(values_of({rank_state(net, &optimizer)}), expected);
}

TEST(Checkpoint, KeepsTheStateOfAGenerator) {
  const TemporaryFolder folder;
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(5);
  torch::randn({3}, generator);
  const auto path = save_checkpoint(
      folder.path("run"),
      std::vector<RankState>{{.tensors = {{"generator", generator.get_state()}}}}, {});
  const torch::Tensor expected = torch::randn({3}, generator);
  const torch::Tensor state = torch::zeros_like(generator.get_state());
  load_checkpoint(path, std::vector<RankState>{{.tensors = {{"generator", state}}}});
  auto other = torch::make_generator<at::CPUGeneratorImpl>(6);
  other.set_state(state);
  EXPECT_TRUE(torch::randn({3}, other).equal(expected));
}

TEST(Checkpoint, HoldsNothingOfWhoWroteIt) {
  const TemporaryFolder folder;
  Net net(1);
  torch::optim::AdamW first(net.first->parameters());
  std::vector<torch::Tensor> others = net.norm->parameters();
  for (const torch::Tensor& tensor : net.last->parameters()) others.push_back(tensor);
  torch::optim::AdamW rest(others);
  train(net, first, 0);
  rest.step();
  // Two ranks, of which both hold the norm and only one trains it.
  const auto part = [&](std::initializer_list<const char*> modules,
                        torch::optim::Optimizer* optimizer) {
    RankState state{.tensors = {}, .optimizer = optimizer};
    for (const auto& [name, tensor] : rank_state(net).tensors) {
      for (const char* module : modules) {
        if (name.starts_with(module)) state.tensors.emplace_back(name, tensor);
      }
    }
    return state;
  };
  const auto path = save_checkpoint(
      folder.path("run"), {part({"first", "norm"}, &first), part({"norm", "last"}, &rest)},
      {.step = 1});
  EXPECT_THAT(names_in(path), ElementsAre("manifest.json", "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors",
                                          "optimizer-00001-of-00002.safetensors",
                                          "optimizer-00002-of-00002.safetensors"));
  Net whole(2);
  torch::optim::AdamW optimizer(whole.parameters());
  load_checkpoint(path, {rank_state(whole, &optimizer)}, {.needs_all = true});
  auto expected = values_of({rank_state(net, &first)});
  expected.merge(values_of({rank_state(net, &rest)}));
  expect_same(values_of({rank_state(whole, &optimizer)}), expected);
  const std::string manifest = read_file(path / "manifest.json");
  for (const char* word : {"stage", "rank", "schedule", "placement", "microbatch"}) {
    EXPECT_THAT(manifest, Not(HasSubstr(word)));
  }
}

TEST(Checkpoint, OpensOnlyTheFilesThatAreNeeded) {
  const TemporaryFolder folder;
  const torch::Tensor left = torch::ones({2});
  const torch::Tensor right = torch::ones({2});
  const auto path = save_checkpoint(
      folder.path("run"),
      std::vector<RankState>{{.tensors = {{"left", left}}}, {.tensors = {{"right", right}}}}, {});
  std::filesystem::remove(path / "model-00002-of-00002.safetensors");
  load_checkpoint(path, std::vector<RankState>{{.tensors = {{"left", left}}}});
  EXPECT_EQ(message_of([&] {
              load_checkpoint(path, std::vector<RankState>{{.tensors = {{"right", right}}}});
            }),
            path.string() +
                "/model-00002-of-00002.safetensors: cannot be read: No such file or directory");
}

TEST(Checkpoint, SavesATensorWithTwoNamesOnce) {
  const TemporaryFolder folder;
  const torch::Tensor tied = torch::randn({4}, torch::requires_grad());
  torch::optim::AdamW optimizer(std::vector<torch::Tensor>{tied});
  tied.sum().backward();
  optimizer.step();
  const auto path =
      save_checkpoint(folder.path("run"),
                      {{.tensors = {{"head", tied}, {"body", tied}}, .optimizer = &optimizer}}, {});
  const CheckpointManifest manifest = manifest_of(path);
  EXPECT_THAT(manifest.files[0].entries, ElementsAre("body"));
  EXPECT_THAT(manifest.aliases, ElementsAre(std::pair("head", "body")));
  EXPECT_THAT(manifest.scalars, ElementsAre(std::pair("body/step", 1)));
  // Under either name, and as two tensors, too.
  const torch::Tensor head = torch::zeros({4}, torch::requires_grad());
  const torch::Tensor body = torch::zeros({4}, torch::requires_grad());
  torch::optim::AdamW other(std::vector<torch::Tensor>{head});
  load_checkpoint(path, {{.tensors = {{"head", head}}, .optimizer = &other}});
  EXPECT_TRUE(head.equal(tied));
  EXPECT_EQ(state_of(other, head).size(), state_of(optimizer, tied).size());
  load_checkpoint(path, std::vector<RankState>{{.tensors = {{"head", head}, {"body", body}}}});
  EXPECT_TRUE(body.equal(tied));
  // Two tensors that differ do not become one.
  const auto untied = save_checkpoint(
      folder.path("run"), std::vector<RankState>{{.tensors = {{"head", head + 1}, {"body", body}}}},
      {.step = 1});
  EXPECT_EQ(message_of([&] {
              load_checkpoint(
                  untied, std::vector<RankState>{{.tensors = {{"body", body}, {"head", body}}}});
            }),
            untied.string() +
                R"(: "body" and "head" are one tensor of the model, but differ in the checkpoint)");
  EXPECT_TRUE(body.equal(tied)) << "nothing was changed";
}

TEST(Checkpoint, SaysWhatDoesNotFitTheModel) {
  const TemporaryFolder folder;
  Net net(1);
  torch::optim::AdamW optimizer(net.parameters());
  train(net, optimizer, 0);
  const auto path = save_checkpoint(folder.path("run"), {rank_state(net, &optimizer)}, {.step = 1});
  const auto failure = [&](const RankState& state, const LoadOptions& options = {}) {
    return message_of([&] { load_checkpoint(path, {state}, options); });
  };
  const torch::Tensor before = net.first->weight.detach().clone();
  EXPECT_EQ(failure({.tensors = {{"frist.weight", net.first->weight}}}),
            path.string() + R"(: the checkpoint has no tensor "frist.weight", the nearest name is )"
                            R"("first.weight"; was it saved from another model?)");
  EXPECT_EQ(failure({.tensors = {{"first.weight", net.first->weight}}}, {.needs_all = true}),
            path.string() + R"(: the model has no tensor "first.bias", which the checkpoint )"
                            "holds; was it saved from another model?");
  EXPECT_EQ(failure({.tensors = {{"first.weight", net.last->weight}}}),
            path.string() +
                R"(/model-00001-of-00001.safetensors: "first.weight" is Float of shape )"
                "[4, 3], but the model has Float of shape [3, 4]");
  torch::optim::SGD sgd(net.parameters(), 0.1);
  EXPECT_EQ(failure(rank_state(net, &sgd)),
            path.string() +
                ": has the state of AdamW, not of SGD; load without an optimizer to "
                "begin with a new one");
  EXPECT_TRUE(net.first->weight.equal(before));

  const auto bare = save_checkpoint(folder.path("run"), {rank_state(net)}, {.step = 2});
  EXPECT_EQ(
      message_of([&] { load_checkpoint(bare, {rank_state(net, &sgd)}); }),
      bare.string() + ": has no state of an optimizer; load without one to begin with a new SGD");
}

TEST(Checkpoint, SaysWhatCannotBeSaved) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  Net net(1);
  torch::optim::SGD sgd(net.first->parameters(), 0.1);
  torch::optim::AdamW adam(net.last->parameters());
  EXPECT_EQ(message_of([&] {
              save_checkpoint(run, {rank_state(net, &sgd), rank_state(net, &adam)}, {});
            }),
            "the optimizers are SGD and AdamW; a checkpoint holds the state of one kind");
  EXPECT_EQ(message_of([&] { save_checkpoint(run, {rank_state(net)}, {}, {.keep = -1}); }),
            "cannot keep -1 checkpoints; keep at least 1, or 0 for all");
  EXPECT_EQ(message_of([&] { save_checkpoint(run, {rank_state(net)}, {.step = -3}); }),
            "there is no step -3");
  EXPECT_EQ(message_of([&] { save_checkpoint(run, {rank_state(net)}, {.data = "{nonsense"}); }),
            R"(the data position "{nonsense" is not a JSON text)");
  EXPECT_EQ(
      message_of([&] {
        save_checkpoint(run, std::vector<RankState>{{.tensors = {{"a\tb", torch::ones(1)}}}}, {});
      }),
      R"("a\x09b" cannot be saved: a name must not hold the byte 0x09)");
  EXPECT_THAT(message_of([&] {
                save_checkpoint(run,
                                std::vector<RankState>{
                                    {.tensors = {{"wave", torch::ones(1, torch::kComplexFloat)}}}},
                                {});
              }),
              HasSubstr(R"("wave" is a tensor of ComplexFloat)"));
  EXPECT_THAT(list_checkpoints(run), IsEmpty());
  EXPECT_THAT(names_in(run), IsEmpty());
}

TEST(Checkpoint, RefusesTensorsWithoutMemory) {
  const TemporaryFolder folder;
  const torch::Tensor weight = torch::ones({3});
  const std::vector<RankState> states{{.tensors = {{"weight", weight}}}};
  const auto path = save_checkpoint(folder.path("run"), states, {.step = 1});
  drop_memory(weight);
  const std::string problem =
      R"(/model-00001-of-00001.safetensors: "weight" has a shape but no memory: its stage is sharded; )"
      "make the RankState from the stage, which knows of its slices";
  EXPECT_THAT(message_of([&] { save_checkpoint(folder.path("run"), states, {.step = 2}); }),
              EndsWith(problem));
  EXPECT_EQ(message_of([&] { load_checkpoint(path, states); }), path.string() + problem);
}

TEST(CheckpointFolder, KeepsTheNewestAndRemovesWhatWasLeftBehind) {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  std::filesystem::create_directories(run + "/step-00000009.partial-abc/x");
  std::filesystem::create_directories(run + "/step-00000001.removing-abc");
  std::filesystem::create_directories(run + "/notes");
  std::filesystem::create_directories(run + "/step-3");  // not ours: it would be step-00000003
  EXPECT_EQ(latest_checkpoint(run), std::nullopt);
  EXPECT_EQ(latest_checkpoint(folder.path("nowhere")), std::nullopt);
  const auto save = [&](std::int64_t step) {
    return save_checkpoint(
        run,
        std::vector<RankState>{
            {.tensors = {{"weight", torch::full({2}, static_cast<double>(step))}}}},
        {.step = step}, {.keep = 2});
  };
  for (const std::int64_t step : {5, 8, 100000000, 11}) {
    save(step);
    EXPECT_TRUE(std::filesystem::exists(checkpoint_path(run, step))) << "the new one stays";
  }
  EXPECT_THAT(names_in(run), ElementsAre("notes", "step-00000011", "step-100000000", "step-3"));
  EXPECT_EQ(latest_checkpoint(run), run + "/step-100000000");
  // The same step again replaces what is there.
  const auto path = save_checkpoint(
      run, std::vector<RankState>{{.tensors = {{"weight", torch::full({2}, -1.0)}}}}, {.step = 11});
  EXPECT_EQ(CheckpointReader(path).read("weight")[0].item<float>(), -1.0F);
  EXPECT_THAT(names_in(run), ElementsAre("notes", "step-00000011", "step-100000000", "step-3"));
}

TEST(CheckpointOfProcesses, IsWrittenByAllAndCommittedOnce) {
  const TemporaryFolder folder;  // each process has one, and uses that of rank 0
  run_in_processes(3, [&](const WorldOptions& options) {
    World world(options);
    const std::string run = world.exchange(world.everyone(), "folder", folder.path("run"))[0];
    const CheckpointGroup group = checkpoint_group(world, world.everyone());
    // Each has a tensor of its own, all have two more.
    const torch::Tensor own = torch::full({100}, world.rank());
    const torch::Tensor shared = torch::full({100}, 7);
    const RankState state{
        .tensors = {{fmt::format("own.{}", world.rank()), own}, {"a", shared}, {"b", shared + 1}}};
    for (const std::int64_t step : {4, 6}) {
      const auto path = save_checkpoint(run, {state}, {.step = step}, {.keep = 1, .group = group});
      EXPECT_EQ(path, run + fmt::format("/step-{:08}", step));
      // Whoever returns from it finds it whole.
      EXPECT_EQ(CheckpointReader(path).entries().size(), 5U);
      EXPECT_THAT(CheckpointReader(path).find_damage(), IsEmpty());
      EXPECT_TRUE(CheckpointReader(path).read("own.2").equal(torch::full({100}, 2)));
      world.exchange(world.everyone(), fmt::format("checked {}", step), "");
    }
    if (world.rank() == 0) {
      EXPECT_THAT(names_in(run), ElementsAre("step-00000006"));
      const CheckpointManifest manifest = manifest_of(run + "/step-00000006");
      ASSERT_EQ(manifest.files.size(), 3U);
      EXPECT_THAT(manifest.files[0].entries, ElementsAre("a", "own.0"));
      EXPECT_THAT(manifest.files[1].entries, ElementsAre("b", "own.1"));
      EXPECT_THAT(manifest.files[2].entries, ElementsAre("own.2"));
    }
    // What one cannot save, all hear of.
    RankState bad = state;
    if (world.rank() == 1) bad.tensors[0].second = torch::ones({1}, torch::kComplexFloat);
    EXPECT_THAT(message_of([&] { save_checkpoint(run, {bad}, {.step = 8}, {.group = group}); }),
                EndsWith(R"(/model-00002-of-00003.safetensors: "own.1" is a tensor of )"
                         "ComplexFloat, which safetensors files do not hold (rank 1)"));
    const std::int64_t step = world.rank() == 2 ? 11 : 10;
    EXPECT_EQ(message_of([&] { save_checkpoint(run, {state}, {.step = step}, {.group = group}); }),
              run + ": rank 2 saves step 11, rank 0 saves step 10 (rank 0)");
    world.exchange(world.everyone(), "failed", "");
    EXPECT_THAT(names_in(run), ElementsAre("step-00000006"));
    world.exchange(world.everyone(), "end", "");
    std::filesystem::remove_all(folder.path(""));  // this process ends without destructors
  });
}

}  // namespace
}  // namespace penstock
