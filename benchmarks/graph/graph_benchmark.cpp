#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include "penstock/run/pipe/pipe.h"
#include "penstock/run/random/random_scope.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/process_tuning.h"

// What it costs to run a stage as a captured graph instead of the module it was captured from:
// forward and backward of the same layers on the same input, taken in turns.
namespace penstock {
namespace {

namespace nn = torch::nn;

constexpr int kRows = 32;
constexpr int kBlocks = 4;

// Residual blocks of a transformer without its attention: layer norm, two linear layers, GELU.
class BlocksImpl final : public nn::Module {
 public:
  explicit BlocksImpl(std::int64_t hidden) {
    for (int block = 0; block < kBlocks; ++block) {
      const std::string name = std::to_string(block);
      norms_.emplace_back(
          register_module("norm" + name, nn::LayerNorm(nn::LayerNormOptions({hidden}))));
      grow_.emplace_back(register_module("grow" + name, nn::Linear(hidden, 2 * hidden)));
      shrink_.emplace_back(register_module("shrink" + name, nn::Linear(2 * hidden, hidden)));
    }
  }

  torch::Tensor forward(torch::Tensor hidden) {
    for (std::size_t block = 0; block < norms_.size(); ++block) {
      hidden = hidden + shrink_[block](torch::gelu(grow_[block](norms_[block](hidden))));
    }
    return hidden;
  }

 private:
  std::vector<nn::LayerNorm> norms_;
  std::vector<nn::Linear> grow_;
  std::vector<nn::Linear> shrink_;
};

class Stopwatch {
 public:
  template <typename Work>
  void time(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times_.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  double quantile(double share) {
    std::sort(times_.begin(), times_.end());
    return times_[static_cast<std::size_t>(share * static_cast<double>(times_.size() - 1))];
  }

 private:
  std::vector<double> times_;
};

void compare(std::int64_t hidden, int num_runs) {
  const auto layers = std::make_shared<BlocksImpl>(hidden);
  const auto eager = make_stage_module(layers);
  const torch::Tensor input = torch::randn({kRows, hidden}, torch::requires_grad());
  const Pipe pipe = pipeline(layers, {input});
  const auto graph = pipe.stage_module(0);
  const torch::Tensor seed = torch::ones({kRows, hidden});
  const auto train = [&](StageModule& module) {
    return [&] { module.forward({input}, {}).toTensor().backward(seed); };
  };
  const auto forward = [&](StageModule& module) { return [&] { module.forward({input}, {}); }; };
  Stopwatch eager_train, graph_train, eager_forward, graph_forward;
  for (int run = -num_runs / 10; run < num_runs; ++run) {
    Stopwatch warm_up;
    (run < 0 ? warm_up : eager_train).time(train(*eager));
    (run < 0 ? warm_up : graph_train).time(train(*graph));
    (run < 0 ? warm_up : eager_forward).time(forward(*eager));
    (run < 0 ? warm_up : graph_forward).time(forward(*graph));
  }
  const auto percent = [](double graph_time, double eager_time) {
    return 100 * (graph_time / eager_time - 1);
  };
  fmt::print("{:>6} {:>12.1f} {:>12.1f} {:>+9.1f} % {:>+9.1f} % {:>12.1f} {:>12.1f} {:>+9.1f} %\n",
             hidden, eager_train.quantile(0.5), graph_train.quantile(0.5),
             percent(graph_train.quantile(0.5), eager_train.quantile(0.5)),
             percent(graph_train.quantile(0.1), eager_train.quantile(0.1)),
             eager_forward.quantile(0.5), graph_forward.quantile(0.5),
             percent(graph_forward.quantile(0.5), eager_forward.quantile(0.5)));
  std::fflush(stdout);
}

// Of many short series of calls, the fastest: what a call costs when nobody disturbs it.
template <typename Work>
double best_nanoseconds(const Work& work) {
  constexpr int kSeries = 3000;
  constexpr int kCalls = 20;
  double best = std::numeric_limits<double>::infinity();
  for (int series = 0; series < kSeries; ++series) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call) work(call);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kCalls);
  }
  return best;
}

// The price of a scope around a forward that draws nothing, and of one that draws.
void time_random_scopes() {
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = torch::ones({1});
  const auto scoped = [](const auto& work) {
    return best_nanoseconds([&](int number) {
      const RandomScope scope({.step_seed = 1, .microbatch = number});
      work();
    });
  };
  const auto add = [&] { input.add(1); };
  const auto draw = [&] { torch::bernoulli(input, 0.5); };
  fmt::print(
      "\nrandom scope alone {:.0f} ns; around an addition {:+.0f} ns; around a draw {:+.0f} ns\n",
      scoped([] {}), scoped(add) - best_nanoseconds([&](int) { add(); }),
      scoped(draw) - best_nanoseconds([&](int) { draw(); }));
}

}  // namespace
}  // namespace penstock

int main() {
  penstock::use_one_blas_thread();
  penstock::keep_freed_memory();
  at::set_num_threads(1);
  fmt::print("          forward and backward, us                          forward alone, us\n");
  fmt::print("{:>6} {:>12} {:>12} {:>11} {:>11} {:>12} {:>12} {:>11}\n", "hidden", "eager", "graph",
             "median", "10th", "eager", "graph", "median");
  penstock::compare(64, 2000);
  penstock::compare(256, 300);
  penstock::compare(512, 100);
  penstock::compare(1024, 40);
  penstock::time_random_scopes();
}
