#include "penstock/run/partition/internal/time_pieces.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"
#include "penstock/run/capture/saved_state.h"
#include "penstock/run/graph/stage_graph.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

Duration median(std::vector<Duration> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The pieces as stages, run one after the other by this thread.
class PieceRunner {
 public:
  PieceRunner(const CapturedModel& model, const CutPositions& cuts) {
    // Transmitted, for nobody adds up gradients of replicas here.
    std::vector<StageGraph> graphs = split_graph(model, cuts, {.multi_use = MultiUse::Transmit});
    const int num_stages = static_cast<int>(graphs.size());
    for (StageGraph& graph : graphs) {
      const int index = static_cast<int>(stages_.size());
      stages_.push_back(std::make_unique<PipelineStage>(make_graph_module(std::move(graph)),
                                                        StagePosition{index, num_stages}));
    }
    messages_.resize(stages_.size());
  }

  std::size_t num_pieces() const { return stages_.size(); }

  void run(const Microbatch& example, std::vector<std::vector<Duration>>& forward,
           std::vector<std::vector<Duration>>& backward) {
    for (std::size_t index = 0; index < stages_.size(); ++index) {
      PipelineStage& stage = *stages_[index];
      stage.begin_step({.is_training = true, .num_microbatches = 1});
      const Clock::time_point begin = Clock::now();
      const c10::IValue output = stage.forward(0, index == 0 ? example.args : messages_[index - 1],
                                               index == 0 ? example.kwargs : KeywordArguments{});
      forward[index].push_back(Clock::now() - begin);
      stage.keep_outputs(0, stage.is_last() ? flat(output) : output, messages_[index]);
    }
    Message gradients = ones_like(messages_.back());
    for (std::size_t index = stages_.size(); index-- > 0;) {
      Message input_gradients;
      const Clock::time_point begin = Clock::now();
      stages_[index]->backward(0, gradients, input_gradients);
      backward[index].push_back(Clock::now() - begin);
      stages_[index]->end_step();
      gradients = std::move(input_gradients);
    }
  }

 private:
  static c10::IValue flat(const c10::IValue& output) {
    std::vector<c10::IValue> tensors;
    for_each_tensor(output, [&](const at::Tensor& tensor) { tensors.emplace_back(tensor); });
    return c10::ivalue::Tuple::create(std::move(tensors));
  }
  static Message ones_like(const Message& outputs) {
    Message gradients;
    for (const c10::IValue& output : outputs) {
      const at::Tensor& tensor = output.toTensor();
      gradients.emplace_back(tensor.requires_grad() ? at::ones_like(tensor) : at::Tensor());
    }
    return gradients;
  }

  std::vector<std::unique_ptr<PipelineStage>> stages_;
  std::vector<Message> messages_;
};

}  // namespace

void time_pieces(const CapturedModel& model, const CutPositions& cuts, const Microbatch& example,
                 int num_runs, std::vector<LayerCost>& costs) {
  if (example.args.empty() && example.kwargs.empty()) {
    throw ArgumentError(
        "a model cannot be cut by time without running it, which needs example inputs; give them, "
        "or "
        "cut by parameters");
  }
  std::vector<at::Tensor> buffers;
  std::vector<at::Tensor> parameters;
  for (const CapturedModel::Tensor& tensor : model.tensors) {
    (tensor.is_buffer ? buffers : parameters).push_back(tensor.tensor);
  }
  const SavedState saved(buffers);
  const SavedGradients saved_gradients(parameters);
  const at::AutoGradMode with_gradients(true);
  PieceRunner runner(model, cuts);
  PENSTOCK_ASSERT(runner.num_pieces() == costs.size(), "one cost per piece");
  std::vector<std::vector<Duration>> forward(costs.size());
  std::vector<std::vector<Duration>> backward(costs.size());
  constexpr int kWarmUpRuns = 1;
  for (int run = 0; run < kWarmUpRuns + std::max(1, num_runs); ++run) {
    if (run == kWarmUpRuns) {
      forward.assign(costs.size(), {});
      backward.assign(costs.size(), {});
    }
    runner.run(example, forward, backward);
  }
  for (std::size_t index = 0; index < costs.size(); ++index) {
    costs[index].forward = median(forward[index]);
    costs[index].backward = median(backward[index]);
  }
}

}  // namespace penstock
