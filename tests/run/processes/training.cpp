#include "tests/run/processes/training.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "penstock/base/fingerprint.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/processes/process_ranks.h"
#include "tests/run/processes/forked_ranks.h"
#include "tests/run/support/store_backend.h"

namespace penstock {

std::uint64_t fingerprint(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const torch::Tensor dense = tensor.detach().contiguous();
  Fingerprint bytes;
  bytes.add({static_cast<const char*>(dense.data_ptr()), dense.nbytes()});
  return bytes.value();
}

namespace {

// What is trained, as far as it does not depend on whether it was cut by hand or captured.
struct Subject {
  std::string name;  // with that of its schedule
  LossFunction loss;
  std::function<std::vector<c10::IValue>(int rows)> make_inputs;
  std::function<torch::Tensor(int rows)> make_targets;
  bool splits_unevenly = false;  // in every other step
};

std::string train_stages(const Subject& subject, const StageList& local, const Schedule& order,
                         const TrainingOptions& options) {
  const int num_microbatches = extent_of(order).num_microbatches;
  PipelineSchedule pipeline(local, order,
                            {.num_microbatches = num_microbatches,
                             .group = options.group,
                             .loss = subject.loss,
                             .observers = options.observers,
                             .deadline = options.deadline});
  torch::optim::SGD optimizer(pipeline.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::string lines;
  const auto note = [&](const std::string& what, const torch::Tensor& tensor) {
    lines += fmt::format("{} {} {:016x}\n", subject.name, what, fingerprint(tensor));
  };
  const auto note_stages = [&](int step, const char* what, const auto& tensor_of) {
    for (const auto& stage : local) {
      for (const auto& [name, parameter] : stage->module().named_parameters()) {
        note(fmt::format("step {} stage {} {} {}", step, stage->index(), what, name),
             tensor_of(parameter));
      }
    }
  };
  for (int step = 0; step < options.num_steps; ++step) {
    const int rows = 2 * num_microbatches + (subject.splits_unevenly ? step % 2 : 0);
    const StepResult result =
        pipeline.step(subject.make_inputs(rows), {.target = subject.make_targets(rows)});
    if (!result.output.isNone())
      note(fmt::format("step {} output", step), result.output.toTensor());
    for (std::size_t index = 0; index < result.losses.size(); ++index) {
      note(fmt::format("step {} loss {}", step, index), result.losses[index]);
    }
    note_stages(step, "gradient", [](const torch::Tensor& tensor) { return tensor.grad(); });
    optimizer.step();
    optimizer.zero_grad();
    note_stages(step, "parameter", [](const torch::Tensor& tensor) { return tensor; });
  }
  return lines;
}

Schedule order_of(const TrainingCase& shape) {
  return make_schedule(shape.schedule,
                       {.num_ranks = shape.num_ranks, .num_microbatches = shape.num_microbatches});
}

std::string name_of(const TrainingCase& shape) {
  return fmt::format("{} p={}", shape.schedule, shape.num_ranks);
}

}  // namespace

std::vector<TrainingCase> training_cases(int num_ranks) {
  std::vector<TrainingCase> cases;
  for (const ScheduleFamily& family : schedule_families()) {
    const std::string name(family.name);
    const bool fits =
        family.num_ranks == ScheduleFamily::kAnyNumber || family.num_ranks == num_ranks;
    if (name == "ForwardOnly" || !fits) continue;
    cases.push_back({name, num_ranks, 2 * num_ranks});
  }
  return cases;
}

StageList local_stages(const StageList& stages, const Schedule& order,
                       const std::shared_ptr<RankGroup>& group) {
  if (group == nullptr) return stages;
  const Placement placement = placement_of(order, extent_of(order).num_stages);
  StageList local;
  for (const auto& stage : stages) {
    if (placement.rank_of(stage->index()) == group->local_ranks().front()) local.push_back(stage);
  }
  return local;
}

std::string train(const TestModel& model, const TrainingCase& shape,
                  const TrainingOptions& options) {
  return train(model, name_of(shape), order_of(shape), options);
}

std::string train(const TestModel& model, const std::string& name, const Schedule& order,
                  const TrainingOptions& options) {
  const StageList stages = make_stages(model.make(extent_of(order).num_stages));
  const Subject subject{
      .name = model.name + " " + name,
      .loss = model.loss,
      .make_inputs =
          [&model](int rows) { return std::vector<c10::IValue>{model.make_inputs(rows)}; },
      .make_targets = model.make_targets,
      .splits_unevenly = true};
  return train_stages(subject, local_stages(stages, order, options.group), order, options);
}

std::string train_whole(const WholeModel& model, const TrainingCase& shape,
                        const TrainingOptions& options) {
  const Schedule order = order_of(shape);
  const int num_stages = extent_of(order).num_stages;
  const Placement placement = placement_of(order, num_stages);
  const Pipe pipe = pipeline(trace_source(model.make()), model.make_inputs(2),
                             {.split_policy = split_by_parameters(num_stages)});
  StageList local;
  for (int stage = 0; stage < num_stages; ++stage) {
    const bool is_local = options.group == nullptr ||
                          placement.rank_of(stage) == options.group->local_ranks().front();
    if (is_local) local.push_back(pipe.build_stage(stage));
  }
  const Subject subject{
      .name = model.name + " " + name_of(shape),
      .loss = [&model](const c10::IValue& output, const c10::IValue& target,
                       const KeywordArguments&) { return model.loss(output, target.toTensor()); },
      .make_inputs = model.make_inputs,
      .make_targets = model.make_targets};
  return train_stages(subject, local, order, options);
}

std::shared_ptr<PipelineStage> captured_stage(int hidden, int stage) {
  const torch::nn::Sequential model(torch::nn::Linear(8, hidden), torch::nn::Linear(hidden, hidden),
                                    torch::nn::Linear(hidden, 8));
  const Pipe pipe =
      pipeline(model, {torch::zeros({2, 8})}, {.split_policy = split_by_parameters(3)});
  return pipe.build_stage(stage);
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> expect_like_threads(
    int num_ranks, TransportKind transport,
    const std::function<std::string(const std::shared_ptr<RankGroup>&)>& train_all) {
  const std::vector<RankEnd> ends = run_forked(num_ranks, [&](const WorldOptions& options) {
    World world(options);
    return train_all(std::make_shared<ProcessRanks>(
        world, ProcessRankOptions{.transport = transport, .make_backend = store_backend()}));
  });
  std::string lines;
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.has_returned) << end.text << " (signal " << end.signal << ")";
    lines += end.text;
  }
  const auto expected = sorted_lines(run_apart([&] { return train_all(nullptr); }));
  EXPECT_EQ(sorted_lines(lines), expected);
  return expected;
}

}  // namespace penstock
