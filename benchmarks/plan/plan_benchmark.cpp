// How long does it take to generate, lower, prove and simulate a schedule, and how does that grow?
#include <benchmark/benchmark.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/prover/check.h"
#include "penstock/plan/simulator/simulate.h"

namespace penstock {
namespace {

ScheduleShape shape_of(const benchmark::State& state) {
  return {.num_ranks = static_cast<int>(state.range(0)),
          .num_microbatches = static_cast<int>(state.range(2)),
          .stages_per_rank = static_cast<int>(state.range(1))};
}

void count_actions(benchmark::State& state, const Schedule& program) {
  const auto count = static_cast<double>(num_actions(program));
  state.counters["actions"] = count;
  state.counters["actions/s"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate);
}

// Every step of the way, the prover run once more on the result as a cautious user would.
void generate_lower_check(benchmark::State& state) {
  Schedule program;
  for (auto _ : state) {
    program = lower(make_schedule("Interleaved1F1B", shape_of(state)));
    require_valid(program);
  }
  count_actions(state, program);
}

void generate_lower(benchmark::State& state) {
  Schedule program;
  for (auto _ : state) program = lower(make_schedule("Interleaved1F1B", shape_of(state)));
  count_actions(state, program);
}

void simulate_only(benchmark::State& state) {
  const Schedule program = lower(make_schedule("Interleaved1F1B", shape_of(state)));
  const CostModel costs = CostModel::uniform();
  for (auto _ : state) benchmark::DoNotOptimize(simulate(program, costs).makespan);
  count_actions(state, program);
}

void name_arguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"p", "v", "m"})->Unit(benchmark::kMillisecond);
}

BENCHMARK(generate_lower)->Apply(name_arguments)->Args({16, 2, 128});
BENCHMARK(generate_lower_check)
    ->Apply(name_arguments)
    ->Args({16, 2, 128})
    ->Args({64, 4, 512})
    ->Args({64, 4, 2048})
    ->Args({64, 4, 8192});
BENCHMARK(generate_lower_check)
    ->Apply(name_arguments)
    ->Name("growth")
    ->Args({8, 4, 512})
    ->Args({8, 4, 4096})
    ->Args({8, 4, 32768})
    ->Args({8, 4, 65536});
BENCHMARK(simulate_only)->Apply(name_arguments)->Args({8, 2, 512})->Args({64, 2, 1024});

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
