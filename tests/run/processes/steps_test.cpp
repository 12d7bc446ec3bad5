// What a step takes and gives, with ranks as processes: to the bit what it is with threads.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/run/pipeline/schedules.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/pinned_thread.h"
#include "penstock/run/threads/shared_cores.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/processes/training.h"
#include "tests/run/support/callable_stages.h"
#include "tests/run/support/message_of.h"
#include "tests/run/support/named_shapes.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using GroupPointer = std::shared_ptr<RankGroup>;

// One rank per stage and others, with whole and with split backwards.
constexpr std::array<const char*, 3> kStepSchedules = {"1F1B", "ZB-H1", "GPipe"};

// Lines about the tensors of a run.
class Notes {
 public:
  explicit Notes(std::string name) : name_(std::move(name)) {}

  void add(const std::string& what, const torch::Tensor& tensor) {
    lines_ += fmt::format("{} {} {:016x}\n", name_, what, fingerprint(tensor));
  }
  void add(const StepResult& result) {
    if (!result.output.isNone()) add("output", result.output.toTensor());
    for (std::size_t index = 0; index < result.losses.size(); ++index) {
      add(fmt::format("loss {}", index), result.losses[index]);
    }
  }
  // The gradients of these parameters, and of what callables of local stages have captured.
  void add_gradients(const StageList& stages) {
    for (const auto& stage : stages) {
      for (const auto& [name, parameter] : stage->module().named_parameters()) {
        add(fmt::format("stage {} gradient {}", stage->index(), name), parameter.grad());
      }
    }
  }
  const std::string& lines() const { return lines_; }

 private:
  std::string name_;
  std::string lines_;
};

// The shapes that threads of two ranks are tested with, but the usual ones; and orders of any
// origin.
std::string train_other_shapes(const GroupPointer& group) {
  const TestModel model = mlp_model();
  std::string lines;
  for (const NamedShape& shape : training_shapes()) {
    if (shape.num_ranks != 2) continue;
    lines += train(model, ::testing::PrintToString(shape), make_schedule(shape),
                   {.group = group, .num_steps = 2});
  }
  for (const auto& [name, order] : custom_schedules()) {
    for (const TestModel& each : test_models()) {
      lines += train(each, name, order, {.group = group, .num_steps = 2});
    }
  }
  return lines;
}

// Before the first step and after it, on V layouts too.
std::string evaluate_every_schedule(const GroupPointer& group) {
  const TestModel model = mlp_model();
  std::string lines;
  for (const ScheduleFamily& family : schedule_families()) {
    if (family.num_ranks != ScheduleFamily::kAnyNumber && family.num_ranks != 2) continue;
    const Schedule order = make_schedule(family.name, {.num_ranks = 2, .num_microbatches = 4});
    const StageList stages =
        local_stages(make_stages(model.make(extent_of(order).num_stages)), order, group);
    PipelineSchedule pipeline(stages, order,
                              {.num_microbatches = 4, .group = group, .loss = model.loss});
    const StepOptions options{.target = model.make_targets(9)};
    Notes notes(fmt::format("eval {}", family.name));
    notes.add(pipeline.eval({model.make_inputs(9)}));
    notes.add_gradients(stages);  // there are none
    if (family.name != "ForwardOnly") notes.add(pipeline.step({model.make_inputs(9)}, options));
    notes.add(pipeline.eval({model.make_inputs(9)}, options));
    notes.add_gradients(stages);
    lines += notes.lines();
  }
  return lines;
}

// 7 rows in microbatches of 3, 2 and 2, counted along either dimension of the target.
std::string train_by_rows(const GroupPointer& group) {
  const TestModel model = mlp_model();
  std::string lines;
  for (const char* name : {"1F1B", "ZBVZeroBubble"}) {
    const Schedule order = make_schedule(name, {.num_ranks = 2, .num_microbatches = 3});
    for (const int dim : {0, 1}) {
      const StageList stages =
          local_stages(make_stages(model.make(extent_of(order).num_stages)), order, group);
      PipelineSchedule pipeline(
          stages, order,
          {.num_microbatches = 3,
           .group = group,
           .loss =
               [&model, dim](const torch::Tensor& output, const torch::Tensor& target) {
                 return model.loss(output, target.transpose(0, dim).contiguous());
               },
           .target_chunk_spec = ChunkSpec::split(dim),
           .loss_weights = LossWeights::ByRows});
      Notes notes(fmt::format("by rows {}", name));
      notes.add(pipeline.step({model.make_inputs(7)},
                              {.target = model.make_targets(7).transpose(0, dim).contiguous()}));
      notes.add_gradients(stages);
      lines += notes.lines();
    }
  }
  return lines;
}

std::string train_presplit(const GroupPointer& group) {
  const TestModel model = mlp_model();
  std::string lines;
  for (const char* name : kStepSchedules) {
    const Schedule order = make_schedule(name, {.num_ranks = 2, .num_microbatches = 2});
    const StageList stages = local_stages(make_stages(model.make(2)), order, group);
    PipelineSchedule pipeline(stages, order,
                              {.num_microbatches = 2, .group = group, .loss = model.loss});
    Notes notes(fmt::format("presplit {}", name));
    for (const auto& [first, second] : {std::pair{1, 5}, std::pair{4, 2}}) {
      notes.add(pipeline.step(
          PresplitBatch{.inputs = {{.args = {model.make_inputs(first)}, .kwargs = {}},
                                   {.args = {model.make_inputs(second)}, .kwargs = {}}},
                        .targets = {model.make_targets(first), model.make_targets(second)}}));
    }
    notes.add_gradients(stages);
    lines += notes.lines();
  }
  return lines;
}

// Tensors with and without gradients, None, numbers and lists of them.
std::string train_with_several_values(const GroupPointer& group) {
  using Inputs = std::vector<c10::IValue>;
  std::string lines;
  for (const char* name : kStepSchedules) {
    const torch::Tensor weight = parameter(3);
    const torch::Tensor unused = parameter(2);
    const auto first = [&](const Inputs& inputs, const KeywordArguments&) -> c10::IValue {
      const torch::Tensor x = inputs[0].toTensor();
      return c10::ivalue::Tuple::create({x * weight, c10::IValue(), torch::arange(x.size(0)),
                                         x * unused, x.size(0), x.sizes().vec()});
    };
    const auto second = [](const Inputs& inputs, const KeywordArguments&) -> c10::IValue {
      TORCH_CHECK(inputs.size() == 6 && inputs[1].isNone());
      TORCH_CHECK(inputs[4].toInt() == inputs[2].toTensor().size(0));
      return inputs[0].toTensor().view(inputs[5].toIntVector()) +
             inputs[2].toTensor().to(torch::kFloat).unsqueeze(1);
    };
    const Schedule order = make_schedule(name, {.num_ranks = 2, .num_microbatches = 3});
    const StageList stages = local_stages(make_stages(first, second), order, group);
    PipelineSchedule pipeline(stages, order,
                              {.num_microbatches = 3, .group = group, .loss = sum_of_products});
    Notes notes(fmt::format("several values {}", name));
    for (const int rows : {3, 7, 4}) {
      notes.add(pipeline.step({torch::ones({rows, 2})}, {.target = torch::ones({rows, 2})}));
    }
    if (stages.front()->is_first()) {
      notes.add("gradient", weight.grad());
      notes.add("missing gradient", unused.grad());
    }
    lines += notes.lines();
  }
  return lines;
}

// The first stage takes "scale", the second one "shift".
StageList stages_with_keywords(const torch::Tensor& weight) {
  using Inputs = std::vector<c10::IValue>;
  return make_stages(
      {make_stage_module(
           [weight](const Inputs& inputs, const KeywordArguments& keywords) -> c10::IValue {
             return inputs[0].toTensor() * keywords.at("scale").toTensor() * weight;
           },
           {.keywords = {"scale"}}),
       make_stage_module(
           [](const Inputs& inputs, const KeywordArguments& keywords) -> c10::IValue {
             return inputs[0].toTensor() * keywords.at("shift").toTensor();
           },
           {.keywords = {"shift"}})});
}

std::string train_with_keywords(const GroupPointer& group) {
  std::string lines;
  for (const char* name : kStepSchedules) {
    const torch::Tensor weight = parameter(3);
    const torch::Tensor scale = torch::arange(1.0, 6.0).requires_grad_();
    const torch::Tensor shift = torch::arange(2.0, 7.0).requires_grad_();
    const Schedule order = make_schedule(name, {.num_ranks = 2, .num_microbatches = 2});
    const StageList stages = local_stages(stages_with_keywords(weight), order, group);
    PipelineSchedule pipeline(stages, order,
                              {.num_microbatches = 2, .group = group, .loss = sum_of_products});
    Notes notes(fmt::format("keywords {}", name));
    notes.add(pipeline.step({torch::ones({5})}, {.target = torch::arange(5.0),
                                                 .kwargs = {{"scale", scale}, {"shift", shift}}}));
    if (stages.front()->is_first()) notes.add("gradient of weight", weight.grad());
    if (stages.front()->is_first()) notes.add("gradient of scale", scale.grad());
    if (stages.back()->is_last()) notes.add("gradient of shift", shift.grad());
    lines += notes.lines();
  }
  return lines;
}

class StepsOverProcesses : public ::testing::TestWithParam<TransportKind> {};

TEST_P(StepsOverProcesses, AreThoseOfThreads) {
  const auto lines = expect_like_threads(2, GetParam(), [](const GroupPointer& group) {
    return train_other_shapes(group) + evaluate_every_schedule(group) + train_by_rows(group) +
           train_presplit(group) + train_with_several_values(group) + train_with_keywords(group);
  });
  EXPECT_GT(lines.size(), 2000U);
  for (const char* begin :
       {"Mlp ZBVZeroBubble p=2 v=2 m=1 ", "Mlp Interleaved1F1B p=2 v=3 m=5 ", "Mlp Lowered ",
        "eval V-Half output", "by rows 1F1B stage 1 gradient", "presplit GPipe loss 1"}) {
    EXPECT_THAT(lines, Contains(StartsWith(begin)));
  }
  EXPECT_THAT(lines, Contains(EndsWith("several values 1F1B missing gradient 0000000000000000")));
  for (const char* part : {"several values ZB-H1 gradient ", "keywords 1F1B gradient of shift "}) {
    EXPECT_THAT(lines, Contains(HasSubstr(part)));
    EXPECT_THAT(lines, ::testing::Not(Contains(fmt::format("{}{:016x}", part, 0))));
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, StepsOverProcesses,
                         ::testing::Values(TransportKind::Automatic, TransportKind::Gloo),
                         [](const auto& instance) {
                           return instance.param == TransportKind::Gloo ? "Gloo" : "SharedMemory";
                         });

TEST(KeywordsOverProcesses, AreRefusedByNameIfNoStageOfAnyProcessTakesThem) {
  const std::vector<RankEnd> ends = run_forked(2, [](const WorldOptions& options) {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    const Schedule order = make_schedule("1F1B", {.num_ranks = 2, .num_microbatches = 2});
    PipelineSchedule pipeline(local_stages(stages_with_keywords(parameter(3)), order, group), order,
                              {.num_microbatches = 2, .group = group});
    const torch::Tensor ones = torch::ones({2});
    const std::string refusal = message_of([&] {
      pipeline.eval({ones}, {.kwargs = {{"shift", ones}, {"scal", ones}}});
    });
    // Nothing has begun, so nothing is lost.
    pipeline.eval({ones}, {.kwargs = {{"shift", ones}, {"scale", ones}}});
    return refusal;
  });
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.has_returned);
    EXPECT_EQ(end.text, "no stage takes a keyword input \"scal\"; did you mean \"scale\"?");
  }
}

// What each rank has for its operators, whoever started it.
TEST(ThreadsOfProcesses, AreDividedAmongTheRanksOfAHost) {
  const auto threads_of = [](int num_ranks, int wanted) {
    const std::vector<RankEnd> ends =
        run_forked(num_ranks, [wanted](const WorldOptions& options) -> std::string {
          World world(options);
          const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
          int num_threads = 0;
          const auto module = make_stage_module([&](torch::Tensor x) {
            num_threads = at::get_num_threads();
            return x;
          });
          Schedule1F1B pipeline(
              {std::make_shared<PipelineStage>(module, StagePosition{options.rank, options.size})},
              {.num_microbatches = 1, .group = group, .intra_op_threads = wanted});
          pipeline.eval({torch::ones({1})});
          using GetNumThreads = int (*)();
          const auto blas_threads =
              reinterpret_cast<GetNumThreads>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
          return fmt::format("{}, {} in BLAS", num_threads,
                             blas_threads == nullptr ? 1 : blas_threads());
        });
    std::vector<std::string> texts;
    for (const RankEnd& end : ends) texts.push_back(end.text);
    return texts;
  };
  const int cores = static_cast<int>(allowed_cores().size());
  const std::string share =
      fmt::format("{}, 1 in BLAS", std::max(1, std::min(at::get_num_threads(), cores / 2)));
  EXPECT_THAT(threads_of(2, 0), ::testing::ElementsAre(share, share));
  EXPECT_THAT(threads_of(2, 3), ::testing::Each("3, 1 in BLAS"));
  EXPECT_THAT(threads_of(3, 0),
              ::testing::Each(fmt::format("{}, 1 in BLAS", std::max(1, cores / 3))));
}

TEST(ThreadsOfProcesses, ArePinnedToACoreEach) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "there is one core only";
  const std::vector<RankEnd> ends = run_forked(2, [](const WorldOptions& options) {
    World world(options);
    const auto group = std::make_shared<ProcessRanks>(world, ProcessRankOptions{});
    std::vector<int> own;
    const auto module = make_stage_module([&](torch::Tensor x) {
      own = allowed_cores();
      return x;
    });
    Schedule1F1B pipeline(
        {std::make_shared<PipelineStage>(module, StagePosition{options.rank, options.size})},
        {.num_microbatches = 1, .group = group, .pins_threads = true});
    pipeline.eval({torch::ones({1})});
    return fmt::format("{}", fmt::join(own, " "));
  });
  EXPECT_EQ(ends[0].text, std::to_string(cores[0]));
  EXPECT_EQ(ends[1].text, std::to_string(cores[1]));
}

// As srun binds them.
TEST(ThreadsOfProcesses, AreNotDividedAmongRanksThatHaveTheirOwnCores) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "there is one core only";
  const std::vector<RankEnd> ends = run_forked(3, [&](const WorldOptions& options) {
    pin_to_core(options.rank == 0 ? cores[0] : cores[1]);
    World world(options);
    const ProcessRanks ranks(world, {});
    const auto [num_processes, place] = ranks.processes_on_cores();
    return fmt::format("{} of {}", place, num_processes);
  });
  EXPECT_EQ(ends[0].text, "0 of 1");
  EXPECT_EQ(ends[1].text, "0 of 2");
  EXPECT_EQ(ends[2].text, "1 of 2");
  constexpr int kNobody = 0x3fffffff;
  EXPECT_EQ(shared_cores(std::vector<int>{kNobody}).num_processes, 1)
      << "who cannot be asked is counted";
}

}  // namespace
}  // namespace penstock
