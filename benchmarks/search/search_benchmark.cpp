// How long does a search take, and how close does it come? On the models that arXiv 2401.10241
// profiled: `paper` is the bubble of its ZB-2p, `bound` what no schedule can be below.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "penstock/plan/balance/balance.h"
#include "penstock/plan/search/search.h"
#include "tests/plan/search/search_problems.h"

namespace penstock {
namespace {

void search_paper_row(benchmark::State& state, const testing::PaperRow& row,
                      SearchPlacement placement) {
  SearchOptions options = testing::paper_options(row);
  options.placement = placement;
  SearchResult result;
  for (auto _ : state) result = search(options);
  state.counters["bubble_%"] = 100 * result.figures.span_bubble;
  state.counters["bound_%"] = 100 * result.bound.span_bubble;
  state.counters["paper_%"] = 100 * row.bubble_zb_2p;
  state.counters["candidates"] = static_cast<double>(result.num_candidates);
}

void balance(benchmark::State& state) {
  std::vector<LayerCost> layers(static_cast<std::size_t>(state.range(0)));
  for (std::size_t index = 0; index < layers.size(); ++index) {
    layers[index].forward = Duration(1'000'000 + 7919 * index % 1'000'000);
  }
  const BalanceOptions options = {.num_stages = static_cast<int>(state.range(1))};
  for (auto _ : state) benchmark::DoNotOptimize(balance_layers(layers, options));
}

void register_searches() {
  for (const SearchPlacement placement : {SearchPlacement::Looped, SearchPlacement::Any}) {
    for (const testing::PaperRow& row : testing::paper_rows()) {
      const std::string name =
          fmt::format("search/{}/{}", search_placement_name(placement), row.name);
      benchmark::RegisterBenchmark(name.c_str(), search_paper_row, row, placement)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

BENCHMARK(balance)
    ->ArgNames({"layers", "stages"})
    ->Unit(benchmark::kMillisecond)
    ->Args({100, 8})
    ->Args({10'000, 64});

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  penstock::register_searches();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
