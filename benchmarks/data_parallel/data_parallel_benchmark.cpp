#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/threads/process_tuning.h"
#include "penstock/run/threads/rank_threads.h"

// What data parallel training costs: the step of two replicas, with their gradients reduced,
// against the step of the same ranks that do not know of each other. Both take turns. Without
// RANKS, replicas of one rank, which have a core each on two cores, and of two ranks.
//
//   data_parallel_benchmark [RANKS [ROWS [PAIRS]]]
namespace penstock {
namespace {

constexpr int kReplicas = 2;
constexpr int kMicrobatches = 4;
constexpr int kHidden = 512;
constexpr int kLayers = 4;  // of each stage
constexpr int kWarmUpPairs = 3;
constexpr double kGoal = 1.05;  // together / alone

struct Setting {
  int num_ranks = 1;
  int rows = 256;  // of each microbatch
  int num_pairs = 30;
};

// One that knows nothing of the others in its process, except that they need the cores as well: so
// it waits as those do that train together.
class Stranger final : public RankGroup {
 public:
  int num_ranks() const override { return 1; }
  std::vector<int> local_ranks() const override { return {0}; }
  int num_ranks_in_process() const override { return kReplicas; }
  std::unique_ptr<Fabric> connect(const Schedule& /*program*/,
                                  const FabricOptions& /*options*/) override {
    throw ArgumentError("there is nobody to connect to");
  }
};

StageList make_stages(int num_stages) {
  torch::manual_seed(1);
  StageList stages;
  for (int index = 0; index < num_stages; ++index) {
    torch::nn::Sequential layers;
    for (int layer = 0; layer < kLayers; ++layer) {
      layers->push_back(torch::nn::Linear(kHidden, kHidden));
      layers->push_back(torch::nn::GELU());
    }
    stages.push_back(std::make_shared<PipelineStage>(make_stage_module(layers),
                                                     StagePosition{index, num_stages}));
  }
  return stages;
}

std::unique_ptr<PipelineSchedule> make_pipeline(const Setting& setting, const Replica& replica,
                                                bool is_sharded) {
  const Schedule order =
      make_schedule("1F1B", {.num_ranks = setting.num_ranks, .num_microbatches = kMicrobatches});
  const StageList stages = make_stages(setting.num_ranks);
  if (is_sharded) {
    for (const auto& stage : stages) shard_stage(*stage, {replica.index, replica.count});
  }
  return std::make_unique<PipelineSchedule>(
      stages, order,
      ScheduleOptions{.num_microbatches = kMicrobatches,
                      .data_group = replica.group,
                      .loss = [](const at::Tensor& output) { return output.square().mean(); },
                      .intra_op_threads = 1});
}

void clear_gradients(PipelineSchedule& pipeline) {
  for (const at::Tensor& parameter : pipeline.parameters()) parameter.mutable_grad().reset();
}

// The same ranks, without a word to each other.
class Strangers {
 public:
  explicit Strangers(const Setting& setting)
      : threads_(kReplicas,
                 {.wait = wait_policy_for(kReplicas * setting.num_ranks, std::chrono::minutes(1)),
                  .intra_op_threads = 1}) {
    for (int index = 0; index < kReplicas; ++index) {
      pipelines_.push_back(make_pipeline(setting, {.group = std::make_shared<Stranger>()}, false));
    }
  }
  void step(const at::Tensor& inputs) {
    const std::vector<at::Tensor> parts = inputs.chunk(kReplicas);
    threads_.run([&](int replica) {
      const auto index = static_cast<std::size_t>(replica);
      pipelines_[index]->step({parts[index]}, {.return_outputs = false});
    });
    for (const auto& pipeline : pipelines_) clear_gradients(*pipeline);
  }

 private:
  std::vector<std::unique_ptr<PipelineSchedule>> pipelines_;
  RankThreads threads_;
};

class Together {
 public:
  Together(const Setting& setting, bool is_sharded)
      : replicas_(kReplicas, [&](const Replica& replica) {
          return make_pipeline(setting, replica, is_sharded);
        }) {}
  void step(const at::Tensor& inputs) {
    replicas_.step({inputs}, {.return_outputs = false});
    for (int index = 0; index < kReplicas; ++index) clear_gradients(replicas_.replica(index));
  }

 private:
  PipelineReplicas replicas_;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void compare(const Setting& setting, bool is_sharded) {
  Strangers strangers(setting);
  Together together(setting, is_sharded);
  const at::Tensor inputs = torch::randn({kReplicas * kMicrobatches * setting.rows, kHidden});
  std::vector<double> alone;
  std::vector<double> joined;
  std::vector<double> ratios;
  for (int pair = -kWarmUpPairs; pair < setting.num_pairs; ++pair) {
    double own = 0;
    double both = 0;
    const auto step_alone = [&] { own = seconds_of([&] { strangers.step(inputs); }); };
    const auto step_together = [&] { both = seconds_of([&] { together.step(inputs); }); };
    // Who is first may find the caches, and the clock of the cores, otherwise than who is second.
    if (pair % 2 == 0) {
      step_alone();
      step_together();
    } else {
      step_together();
      step_alone();
    }
    if (pair < 0) continue;
    alone.push_back(own);
    joined.push_back(both);
    ratios.push_back(both / own);
  }
  const double ratio = quantile(ratios, 0.5);
  fmt::print("{:<10}  {:>8.2f}  {:>8.2f}  {:>8.3f}  {:.3f} to {:.3f}   {}\n",
             is_sharded ? "sharded" : "replicated", 1e3 * quantile(alone, 0.5),
             1e3 * quantile(joined, 0.5), ratio, quantile(ratios, 0.25), quantile(ratios, 0.75),
             ratio <= kGoal ? "yes" : "no");
}

void compare_all(const Setting& setting) {
  fmt::print(
      "\n{} replicas of {} rank(s), {} microbatches of {} rows, {} layers of {} x {} per rank; "
      "medians of {} pairs of steps\n"
      "               ms per step       together / alone\n"
      "stages         alone  together    median  quartiles        <= {:.2f}\n",
      kReplicas, setting.num_ranks, kMicrobatches, setting.rows, kLayers, kHidden, kHidden,
      setting.num_pairs, kGoal);
  compare(setting, false);
  compare(setting, true);
}

int run(int argc, char** argv) {
  Setting setting;
  const auto number = [&](int index, int otherwise) {
    return argc > index ? std::max(1, std::atoi(argv[index])) : otherwise;  // NOLINT(cert-err34-c)
  };
  setting.rows = number(2, setting.rows);
  setting.num_pairs = number(3, setting.num_pairs);
  keep_freed_memory();
  use_one_blas_thread();
  const std::vector<int> rank_counts = argc > 1 ? std::vector{number(1, 1)} : std::vector{1, 2};
  for (const int num_ranks : rank_counts) {
    setting.num_ranks = num_ranks;
    compare_all(setting);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run(argc, argv);
}
