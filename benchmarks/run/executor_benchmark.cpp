#include <memory>
#include <vector>

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/process_tuning.h"

// What the executor adds to each action: one rank with four stages does the work of a pipeline on
// one thread, once through the executor and once in bare calls of libtorch, in the same order and
// cut at the same places.
namespace penstock {
namespace {

constexpr int kStages = 4;
constexpr int kMicrobatches = 16;
constexpr int kRows = 4;

struct Workload {
  explicit Workload(std::int64_t hidden)
      : order(make_schedule(
            "Interleaved1F1B",
            {.num_ranks = 1, .num_microbatches = kMicrobatches, .stages_per_rank = kStages})),
        inputs(torch::randn({kRows * kMicrobatches, hidden})),
        targets(torch::randn({kRows * kMicrobatches, hidden})) {
    for (int stage = 0; stage < kStages; ++stage) {
      stages.emplace_back(torch::nn::Linear(hidden, hidden), torch::nn::GELU());
    }
  }

  Schedule order;
  torch::Tensor inputs;
  torch::Tensor targets;
  std::vector<torch::nn::Sequential> stages;
};

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

void through_executor(benchmark::State& state) {
  Workload work(state.range(0));
  StageList stages;
  for (torch::nn::Sequential& layers : work.stages) {
    const int index = static_cast<int>(stages.size());
    stages.push_back(std::make_shared<PipelineStage>(
        make_stage_module(layers), StagePosition{.index = index, .num_stages = kStages}));
  }
  PipelineSchedule pipeline(stages, work.order,
                            {.num_microbatches = kMicrobatches, .loss = loss_of});
  for (auto _ : state) {
    pipeline.step({work.inputs}, {.target = work.targets, .return_outputs = false});
  }
  const auto count = static_cast<double>(num_actions(pipeline.program()));
  state.counters["actions"] = count;
  state.counters["per_action"] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void in_bare_calls(benchmark::State& state) {
  Workload work(state.range(0));
  const Schedule program = lower(work.order, {.sharding = false});
  const torch::Tensor weight = torch::full({}, 1.0 / kMicrobatches);
  std::vector<std::vector<torch::Tensor>> inputs(kStages,
                                                 std::vector<torch::Tensor>(kMicrobatches));
  std::vector<std::vector<torch::Tensor>> outputs = inputs;
  const auto at = [](auto& grid, const Action& action) -> torch::Tensor& {
    return grid[static_cast<std::size_t>(action.stage)]
               [static_cast<std::size_t>(action.microbatch)];
  };
  for (auto _ : state) {
    const auto input_parts = work.inputs.tensor_split(kMicrobatches);
    const auto target_parts = work.targets.tensor_split(kMicrobatches);
    for (const Action& action : program.actions_of(0)) {
      const auto stage = static_cast<std::size_t>(action.stage);
      const auto microbatch = static_cast<std::size_t>(action.microbatch);
      if (action.kind == ActionKind::Forward) {
        torch::Tensor& input = at(inputs, action);
        input = stage == 0 ? input_parts[microbatch]
                           : outputs[stage - 1][microbatch].detach().requires_grad_();
        at(outputs, action) = work.stages[stage]->forward(input);
        if (stage + 1 == kStages) {
          at(outputs, action) = loss_of(at(outputs, action), target_parts[microbatch]);
        }
      } else if (action.kind == ActionKind::FullBackward) {
        torch::Tensor& output = at(outputs, action);
        const bool is_last = stage + 1 == kStages;
        output.backward(is_last ? weight : inputs[stage + 1][microbatch].grad());
        if (!is_last) inputs[stage + 1][microbatch].reset();
        output.reset();
      }
    }
  }
  const auto count = static_cast<double>(num_actions(program));
  state.counters["actions"] = count;
  state.counters["per_action"] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK(through_executor)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK(in_bare_calls)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::use_one_blas_thread();
  penstock::keep_freed_memory();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
