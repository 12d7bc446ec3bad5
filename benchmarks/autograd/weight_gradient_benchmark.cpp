#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include "penstock/run/autograd/backward_graph.h"
#include "penstock/run/threads/process_tuning.h"

// What the two halves of a backward cost against a whole one, with exact and with fused weight
// gradients. The three take turns on the same layers and data, each after a forward that does not
// count; gradients are kept, as they are over the microbatches of a step.
namespace penstock {
namespace {

constexpr int kLayers = 4;
constexpr int kRounds = 100;
constexpr int kWarmUpRounds = 10;

struct Size {
  std::int64_t hidden;
  std::int64_t rows;
};
constexpr std::array<Size, 4> kSizes = {{{256, 32}, {512, 32}, {1024, 64}, {512, 256}}};

double processor_microseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

double time_of(const std::function<void()>& work) {
  const double begin = processor_microseconds();
  work();
  return processor_microseconds() - begin;
}

// The value that so many quarters of the others are below.
double quartile(std::vector<double> values, std::size_t quarters) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * quarters / 4];
}

class Layers {
 public:
  explicit Layers(const Size& size)
      : input_(torch::randn({size.rows, size.hidden})),
        seeds_{torch::randn({size.rows, size.hidden})} {
    for (int layer = 0; layer < kLayers; ++layer) {
      layers_.emplace_back(torch::nn::Linear(size.hidden, size.hidden));
    }
  }

  double time_whole() {
    forward();
    return time_of([this] { graph_.backward(seeds_, input_gradients_); });
  }

  struct Halves {
    double input = 0;
    double weight = 0;
    double sum() const { return input + weight; }
  };
  Halves time_halves(WeightGradients mode) {
    forward();
    return {.input = time_of([this] { graph_.backward_input(seeds_, input_gradients_); }),
            .weight = time_of([this, mode] { graph_.backward_weight(mode); })};
  }

 private:
  void forward() {
    const std::array<at::Tensor, 1> inputs = {input_.detach().requires_grad_()};
    at::Tensor hidden = inputs.front();
    for (torch::nn::Linear& layer : layers_) hidden = torch::gelu(layer(hidden));
    graph_.record(std::array<at::Tensor, 1>{hidden}, inputs);
  }

  std::vector<torch::nn::Linear> layers_;
  at::Tensor input_;
  std::vector<at::Tensor> seeds_;
  std::vector<at::Tensor> input_gradients_;
  BackwardGraph graph_;
};

void measure(const Size& size) {
  Layers layers(size);
  std::vector<double> whole;
  std::vector<double> exact_ratios;
  std::vector<double> fused_ratios;
  std::vector<double> weight_ratios;
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    const double full = layers.time_whole();
    const Layers::Halves exact = layers.time_halves(WeightGradients::Exact);
    const Layers::Halves fused = layers.time_halves(WeightGradients::Fused);
    if (round < 0) continue;
    whole.push_back(full);
    exact_ratios.push_back(exact.sum() / full);
    fused_ratios.push_back(fused.sum() / full);
    weight_ratios.push_back(exact.weight / fused.weight);
  }
  const auto range = [](const std::vector<double>& values) {
    return fmt::format("{:.2f} ({:.2f} to {:.2f})", quartile(values, 2), quartile(values, 1),
                       quartile(values, 3));
  };
  fmt::print("| {} | {} | {:.0f} us | {} | {} | {} |\n", size.hidden, size.rows, quartile(whole, 2),
             range(exact_ratios), range(fused_ratios), range(weight_ratios));
  std::fflush(stdout);
}

}  // namespace
}  // namespace penstock

int main() {
  torch::set_num_threads(1);
  penstock::use_one_blas_thread();
  penstock::keep_freed_memory();
  torch::manual_seed(1);
  fmt::print(
      "| hidden | rows | B | (I + W) / B, exact | (I + W) / B, fused | W exact / W fused |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  for (const penstock::Size& size : penstock::kSizes) penstock::measure(size);
}
