#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/process_tuning.h"

// What the executor adds to each action. One rank with four stages does the work of a pipeline on
// one thread, once through a PipelineSchedule and once in bare calls of libtorch: the same actions
// in the same order, cut at the same places, on the same parameters and data.
//
//   executor_benchmark                          pairs of steps, in turn; the median of differences
//   executor_benchmark executor|bare STEPS      so many steps of one way, to count instructions of
namespace penstock {
namespace {

constexpr int kStages = 4;
constexpr int kMicrobatches = 16;
constexpr int kRows = 4;
constexpr int kPairs = 400;
constexpr int kWarmUpPairs = 40;
constexpr std::array<std::int64_t, 2> kWidths = {64, 256};

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return at::mse_loss(output, target);
}

struct Workload {
  explicit Workload(std::int64_t hidden)
      : order(make_schedule(
            "Interleaved1F1B",
            {.num_ranks = 1, .num_microbatches = kMicrobatches, .stages_per_rank = kStages})) {
    for (int stage = 0; stage < kStages; ++stage) {
      layers.push_back(std::make_shared<torch::nn::LinearImpl>(hidden, hidden));
    }
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      inputs.push_back(at::randn({kRows, hidden}));
      targets.push_back(at::randn({kRows, hidden}));
    }
  }

  at::Tensor forward(std::size_t stage, const at::Tensor& input) const {
    return at::gelu(layers[stage]->forward(input));
  }

  Schedule order;
  std::vector<std::shared_ptr<torch::nn::LinearImpl>> layers;  // one per stage
  std::vector<at::Tensor> inputs;                              // by microbatch
  std::vector<at::Tensor> targets;
};

class ThroughExecutor {
 public:
  explicit ThroughExecutor(const Workload& work)
      : pipeline_(make_stages(work), work.order,
                  {.num_microbatches = kMicrobatches, .loss = loss_of, .intra_op_threads = 1}) {
    for (const at::Tensor& input : work.inputs) batch_.inputs.push_back({.args = {input}});
    batch_.targets.assign(work.targets.begin(), work.targets.end());
  }

  void step() { pipeline_.step(batch_, {.return_outputs = false}); }
  int num_actions() const { return static_cast<int>(penstock::num_actions(pipeline_.program())); }

 private:
  static StageList make_stages(const Workload& work) {
    StageList stages;
    for (int index = 0; index < kStages; ++index) {
      const auto stage = static_cast<std::size_t>(index);
      stages.push_back(std::make_shared<PipelineStage>(
          make_stage_module(
              [&work, stage](const at::Tensor& input) { return work.forward(stage, input); }),
          StagePosition{.index = index, .num_stages = kStages}));
    }
    return stages;
  }

  PipelineSchedule pipeline_;
  PresplitBatch batch_;
};

// Holds tensors for as long as a pipeline does, so that both find memory in the same state.
class BareCalls {
 public:
  explicit BareCalls(const Workload& work)
      : work_(work), program_(lower(work.order, {.sharding = false})) {}

  void step() {
    for (const Action& action : program_.actions_of(0)) {
      const auto stage = static_cast<std::size_t>(action.stage);
      const auto microbatch = static_cast<std::size_t>(action.microbatch);
      if (action.kind == ActionKind::Forward) forward(stage, microbatch);
      if (action.kind == ActionKind::FullBackward) backward(stage, microbatch);
    }
  }

 private:
  struct Cell {
    at::Tensor input;
    torch::autograd::edge_list outputs;
    torch::autograd::variable_list gradients;  // of the output
  };

  void forward(std::size_t stage, std::size_t microbatch) {
    Cell& cell = cells_[stage][microbatch];
    if (stage == 0) cell.input = work_.inputs[microbatch].variable_data();
    at::Tensor output = work_.forward(stage, cell.input);
    if (stage + 1 == kStages) {
      output = loss_of(output, work_.targets[microbatch]);
      losses_[microbatch] = output.detach();
      cell.gradients.push_back(seed_);
    } else {
      at::Tensor& input = cells_[stage + 1][microbatch].input;
      input = output.detach();
      input.set_requires_grad(true);
    }
    cell.outputs.push_back(torch::autograd::impl::gradient_edge(output));
  }

  void backward(std::size_t stage, std::size_t microbatch) {
    Cell& cell = cells_[stage][microbatch];
    torch::autograd::Engine::get_default_engine().execute(cell.outputs, cell.gradients,
                                                          /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
    if (stage > 0) cells_[stage - 1][microbatch].gradients.push_back(cell.input.grad());
    cell.outputs.clear();
    cell.gradients.clear();
    cell.input.reset();
  }

  const Workload& work_;
  Schedule program_;
  at::Tensor seed_ = at::full({}, 1.0 / kMicrobatches);
  std::array<std::array<Cell, kMicrobatches>, kStages> cells_;
  std::array<at::Tensor, kMicrobatches> losses_;
};

// Processor time of this thread: what others do on the machine does not count.
double seconds_of(const std::function<void()>& step) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  step();
  return now() - begin;
}

// Values at a quarter, a half and three quarters.
std::array<double, 3> quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size();
  return {values[count / 4], values[count / 2], values[3 * count / 4]};
}

void compare(std::int64_t hidden) {
  const Workload work(hidden);
  ThroughExecutor executor(work);
  BareCalls bare(work);
  std::vector<double> bare_times;
  std::vector<double> executor_times;
  std::vector<double> differences;
  for (int pair = 0; pair < kWarmUpPairs + kPairs; ++pair) {
    double executor_time = 0;
    double bare_time = 0;
    // Each comes first as often as the other.
    if (pair % 2 == 0) executor_time = seconds_of([&] { executor.step(); });
    bare_time = seconds_of([&] { bare.step(); });
    if (pair % 2 != 0) executor_time = seconds_of([&] { executor.step(); });
    if (pair < kWarmUpPairs) continue;
    const double scale = 1e6 / executor.num_actions();
    executor_times.push_back(scale * executor_time);
    bare_times.push_back(scale * bare_time);
    differences.push_back(scale * (executor_time - bare_time));
  }
  const auto [low, middle, high] = quartiles(differences);
  fmt::print("{:>6}  {:>7}  {:>12.2f}  {:>12.2f}  {:>10.2f}  {:>8.2f} .. {:.2f}\n", hidden,
             executor.num_actions(), quartiles(bare_times)[1], quartiles(executor_times)[1], middle,
             low, high);
}

void stay_on_this_core() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
}

int run(const std::vector<std::string>& arguments) {
  at::manual_seed(1);
  at::set_num_threads(1);
  use_one_blas_thread();
  keep_freed_memory();
  stay_on_this_core();
  if (arguments.empty()) {
    fmt::print("microseconds of processor time per action, medians of {} steps\n", kPairs);
    fmt::print("hidden  actions  bare calls    executor  difference  quartiles of it\n");
    for (const std::int64_t hidden : kWidths) compare(hidden);
    return EXIT_SUCCESS;
  }
  const Workload work(kWidths[0]);
  ThroughExecutor executor(work);
  BareCalls bare(work);
  const int num_steps = arguments.size() == 2 ? std::atoi(arguments[1].c_str()) : 0;
  const bool is_bare = arguments[0] == "bare";
  if (num_steps < 1 || (!is_bare && arguments[0] != "executor")) {
    fmt::print(stderr, "usage: executor_benchmark [executor|bare STEPS]\n");
    return 2;
  }
  for (int step = 0; step < num_steps; ++step) {
    if (is_bare) {
      bare.step();
    } else {
      executor.step();
    }
  }
  fmt::print("{}\n", executor.num_actions());
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run({argv + 1, argv + argc});
}
