#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/train/text_generation.h"
#include "penstock/run/train/token_data.h"
#include "penstock/run/world/group.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"
#include "tests/run/support/small_run.h"
#include "tests/support/temporary_folder.h"

// What `penstock train` does, over processes.
namespace penstock {
namespace {

constexpr int kSteps = 3;

// Every bit of what a step tells.
std::string step_lines(const std::string& name, const SmallRun& run) {
  std::string lines;
  for (int step = 0; step < kSteps; ++step) {
    const StepFigures figures = run.trainer->step();
    if (!run.pipeline->has_last_stage()) continue;
    lines += fmt::format("{} step {} loss {:a} norm {:a}\n", name, figures.step, figures.loss,
                         figures.gradient_norm);
  }
  return lines;
}

RunProcesses processes_of(World& world, TransportKind transport, const MeshShape& shape) {
  const Mesh mesh(world.size(), shape);
  const auto ranks_of = [&](const Group& group) {
    return std::make_shared<ProcessRanks>(
        world, ProcessRankOptions{.group = group, .transport = transport});
  };
  RunProcesses processes{.world = &world, .ranks = ranks_of(mesh.pipeline_of(world.rank()))};
  if (shape.data > 1) processes.replicas = ranks_of(mesh.data_group_of(world.rank()));
  return processes;
}

// Runs all `cases`, one after the other, in one launch of processes.
std::string train_cases(World& world, TransportKind transport, const MeshShape& shape,
                        const std::vector<SmallRunOptions>& cases) {
  const RunProcesses processes = processes_of(world, transport, shape);
  std::string lines;
  for (SmallRunOptions options : cases) {
    options.processes = processes;
    lines += step_lines(options.schedule, SmallRun(options));
  }
  return lines;
}

std::string texts_of(const std::vector<RankEnd>& ends) {
  std::string lines;
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.has_returned) << end.text << " (signal " << end.signal << ")";
    lines += end.text;
  }
  return lines;
}

// Sorted: which rank tells of a case depends on where its last stage is.
std::vector<std::string> train_forked(const MeshShape& shape, TransportKind transport,
                                      const std::vector<SmallRunOptions>& cases) {
  return sorted_lines(
      texts_of(run_forked(shape.pipeline * shape.data, [&](const WorldOptions& options) {
        World world(options);
        return train_cases(world, transport, shape, cases);
      })));
}

// The lines of `reference`, under the name of each of the cases.
std::vector<std::string> expected_lines(const SmallRunOptions& reference,
                                        const std::vector<SmallRunOptions>& cases) {
  return sorted_lines(run_apart([&] {
    const std::string lines = step_lines("", SmallRun(reference));
    std::string all;
    for (const SmallRunOptions& options : cases) {
      for (const std::string& line : sorted_lines(lines)) all += options.schedule + line + "\n";
    }
    return all;
  }));
}

std::vector<SmallRunOptions> all_schedules(int num_ranks) {
  std::vector<SmallRunOptions> cases;
  for (const TrainingCase& shape : training_cases(num_ranks)) {
    cases.push_back({.schedule = shape.schedule, .num_ranks = num_ranks});
  }
  return cases;
}

class TrainerOverProcesses : public ::testing::TestWithParam<int> {};

TEST_P(TrainerOverProcesses, HasTheLossesOfOneThreadUnderEverySchedule) {
  const std::vector<SmallRunOptions> cases = all_schedules(GetParam());
  ASSERT_GE(cases.size(), 10U);
  EXPECT_EQ(train_forked({.pipeline = GetParam()}, TransportKind::SharedMemory, cases),
            expected_lines({.schedule = "1F1B", .num_ranks = 1}, cases));
}

INSTANTIATE_TEST_SUITE_P(Ranks, TrainerOverProcesses, ::testing::Values(2, 4),
                         ::testing::PrintToStringParamName());

TEST(TrainerOverGloo, HasTheLossesOfOneThread) {
  const std::vector<SmallRunOptions> two = {{.schedule = "ZB-H1", .num_ranks = 2}};
  EXPECT_EQ(train_forked({.pipeline = 2}, TransportKind::Gloo, two),
            expected_lines({.num_ranks = 1}, two));
  const std::vector<SmallRunOptions> one = {{.schedule = "GPipe", .num_ranks = 1}};
  EXPECT_EQ(train_forked({.pipeline = 1}, TransportKind::Gloo, one),
            expected_lines({.num_ranks = 1}, one));
}

TEST(TrainerOverMeshes, HasTheLossesOfThreads) {
  // Every stage can be sharded.
  ModelOptions untied = small_gpt();
  untied.is_tied = false;
  const SmallRunOptions reference{.num_ranks = 1, .num_replicas = 2, .model = untied};
  std::vector<SmallRunOptions> cases;
  for (const auto& [name, is_sharded] : std::vector<std::pair<const char*, bool>>{
           {"1F1B", false}, {"ZBVZeroBubble", true}, {"Interleaved1F1B", true}}) {
    cases.push_back({.schedule = name,
                     .num_ranks = 2,
                     .num_replicas = 2,
                     .is_sharded = is_sharded,
                     .model = untied});
  }
  EXPECT_EQ(train_forked({.pipeline = 2, .data = 2}, TransportKind::SharedMemory, cases),
            expected_lines(reference, cases));
  const std::vector<SmallRunOptions> flat = {{.schedule = "GPipe",
                                              .num_ranks = 1,
                                              .num_replicas = 2,
                                              .is_sharded = true,
                                              .model = untied}};
  EXPECT_EQ(train_forked({.pipeline = 1, .data = 2}, TransportKind::Gloo, flat),
            expected_lines(reference, flat));
}

// Saved by the processes of a mesh, resumed by one thread.
TEST(TrainerOverMeshes, SavesWhatOneThreadGoesOnFrom) {
  const testing::TemporaryFolder folder;
  SmallRunOptions alone{.num_ranks = 1};
  alone.model.is_tied = false;
  SmallRunOptions sharded = alone;
  sharded.schedule = "ZBVZeroBubble";
  sharded.num_ranks = 2;
  sharded.num_replicas = 4;
  sharded.is_sharded = true;
  texts_of(run_forked(8, [&](const WorldOptions& options) {
    World world(options);
    SmallRunOptions own = sharded;
    own.processes = processes_of(world, TransportKind::SharedMemory, {.pipeline = 2, .data = 4});
    const SmallRun run(own);
    run.losses_of(2);
    run.trainer->save(folder.path("run"), 0, "{}");
    return std::string();
  }));
  const std::string resumed = run_apart([&] {
    const SmallRun run(alone);
    run.trainer->resume(folder.path("run/step-00000002"));
    return step_lines("", run);
  });
  // One microbatch per replica: the order of one pipeline.
  const std::string expected = run_apart([&] {
    const SmallRun run(alone);
    run.losses_of(2);
    return step_lines("", run);
  });
  EXPECT_EQ(resumed, expected);
  EXPECT_NE(resumed, "");
}

// What a model writes that takes bytes, and was not trained.
std::string text_of(const RunProcesses& processes, int num_tokens) {
  SmallRunOptions options{.num_ranks = 2, .processes = processes};
  options.data = std::make_shared<TokenData>(
      torch::arange(300, torch::kInt).remainder(50).add(60).to(torch::kByte),
      TokenDataOptions{.context = 6, .vocabulary = 256}, "bytes");
  SmallRun run(options);
  run.pipeline->train(false);
  return generate_text(*run.pipeline, "ab", {.context = 6, .num_tokens = num_tokens, .seed = 4});
}

TEST(GenerateTextOverProcesses, IsThatOfThreads) {
  const std::string expected = run_apart([] { return text_of({}, 12); });
  for (const MeshShape& shape : {MeshShape{.pipeline = 2, .data = 1}, {.pipeline = 2, .data = 2}}) {
    for (const RankEnd& end : run_forked(shape.pipeline * shape.data, [&](const auto& options) {
           World world(options);
           return text_of(processes_of(world, TransportKind::Automatic, shape), 12);
         })) {
      EXPECT_EQ(end.text, expected);
    }
  }
}

// Wherever it is by then: in the model, or about to tell which token it has chosen.
TEST(GenerateTextOverProcesses, EndsWhenARankIsKilled) {
  const std::vector<RankEnd> ends =
      run_forked(2,
                 [](const WorldOptions& options) {
                   World world(options);
                   const RunProcesses processes =
                       processes_of(world, TransportKind::Automatic, {.pipeline = 2, .data = 1});
                   if (options.rank == 1) {
                     std::thread([] {
                       std::this_thread::sleep_for(std::chrono::milliseconds(500));
                       kill(getpid(), SIGKILL);
                     }).detach();
                   }
                   return text_of(processes, 1'000'000);
                 },
                 {.patience = std::chrono::seconds(15)});
  EXPECT_TRUE(ends[0].has_thrown);
  EXPECT_THAT(ends[0].text, ::testing::StartsWith("rank 1 (pid "));
  EXPECT_THAT(ends[0].text, ::testing::HasSubstr("has died"));
}

}  // namespace
}  // namespace penstock
