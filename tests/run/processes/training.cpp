#include "tests/run/processes/training.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <fmt/format.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {
namespace {

std::uint64_t fingerprint(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const torch::Tensor dense = tensor.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(dense.data_ptr());
  std::uint64_t hash = 14695981039346656037U;
  for (std::size_t index = 0; index < dense.nbytes(); ++index) {
    hash = (hash ^ bytes[index]) * 1099511628211U;
  }
  return hash;
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

std::string train(const TestModel& model, const TrainingCase& shape,
                  const TrainingOptions& options) {
  const Schedule order = make_schedule(
      shape.schedule, {.num_ranks = shape.num_ranks, .num_microbatches = shape.num_microbatches});
  const int num_stages = extent_of(order).num_stages;
  const int num_microbatches = extent_of(order).num_microbatches;
  const Placement placement = placement_of(order, num_stages);
  const Blocks blocks = model.make(num_stages);
  StageList local;
  std::vector<torch::Tensor> parameters;
  for (const auto& stage : make_stages(blocks)) {
    if (options.group != nullptr &&
        placement.rank_of(stage->index()) != options.group->local_ranks().front()) {
      continue;
    }
    local.push_back(stage);
    for (const torch::Tensor& parameter : stage->parameters()) parameters.push_back(parameter);
  }
  PipelineSchedule pipeline(local, order,
                            {.num_microbatches = num_microbatches,
                             .group = options.group,
                             .loss = model.loss,
                             .observers = options.observers,
                             .deadline = options.deadline});
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  std::string lines;
  const auto note = [&](const std::string& what, const torch::Tensor& tensor) {
    lines += fmt::format("{} {} p={} {} {:016x}\n", model.name, shape.schedule, shape.num_ranks,
                         what, fingerprint(tensor));
  };
  const auto note_stages = [&](int step, const char* what, const auto& tensor_of) {
    for (const auto& stage : local) {
      int number = 0;
      for (const torch::Tensor& parameter : stage->parameters()) {
        note(fmt::format("step {} stage {} {} {}", step, stage->index(), what, number++),
             tensor_of(parameter));
      }
    }
  };
  for (int step = 0; step < options.num_steps; ++step) {
    const int rows = 2 * num_microbatches + step % 2;  // uneven in every other step
    const StepResult result =
        pipeline.step({model.make_inputs(rows)}, {.target = model.make_targets(rows)});
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

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace penstock
