#include "penstock/run/autograd/backward_graph.h"

#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/autograd/internal/fused_weight_gradient.h"
#include "penstock/run/autograd/internal/input_half.h"
#include "penstock/run/autograd/internal/roots.h"
#include "penstock/run/libtorch/compat.h"

namespace penstock {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;
using torch::autograd::impl::gradient_edge;

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

// The engine would sum a seed down to the shape of its output; here that is a mistake.
void check_seeds(std::span<const at::Tensor> seeds, const edge_list& outputs) {
  if (seeds.size() != outputs.size()) {
    throw ArgumentError(
        fmt::format("cannot start a backward with {} for {}; give one per output, undefined where "
                    "there is none",
                    counted(static_cast<long long>(seeds.size()), "gradient", "gradients"),
                    counted(static_cast<long long>(outputs.size()), "output", "outputs")));
  }
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (!seeds[i].defined() || !outputs[i].is_valid()) continue;
    const auto& output = outputs[i].function->input_metadata(outputs[i].input_nr);
    if (!output.is_same_shape(seeds[i])) {
      throw ArgumentError(fmt::format("the gradient of output {} has shape {}; expected {}", i,
                                      shape_text(seeds[i].sizes()),
                                      shape_text(output.zeros_like().sizes())));
    }
  }
}

void accumulate(const Roots& roots) {
  if (roots.edges.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(
      roots.edges, roots.gradients, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

// Serves the roots from `first` on as far as it can, and removes those that are done.
void accumulate_fused(Roots& roots, std::size_t first) {
  std::size_t kept = first;
  for (std::size_t i = first; i < roots.size(); ++i) {
    Edge& edge = roots.edges[i];
    at::Tensor& gradient = roots.gradients[i];
    if (add_fused_weight_gradient(*edge.function, gradient)) {
      edge.function->release_variables();  // tensors that other nodes saved may keep it alive
      edge = Edge();
      gradient.reset();
      continue;
    }
    std::swap(roots.edges[kept], edge);
    std::swap(roots.gradients[kept], gradient);
    ++kept;
  }
  roots.keep_first(kept);
}

}  // namespace

struct BackwardGraph::State {
  enum class Phase { Empty, Recorded, InputDone };

  // Checks the call and makes `input_gradients` as long as the inputs.
  void begin(std::span<const at::Tensor> seeds, std::vector<at::Tensor>& input_gradients) const;
  void select_roots(std::span<const at::Tensor> seeds);
  void run_full(std::vector<at::Tensor>& input_gradients);
  void run_input_half(std::vector<at::Tensor>& input_gradients);
  void clear_input_gradients() const;

  // Lets go of everything but what W needs.
  void clear_graph();
  void clear();

  Phase phase = Phase::Empty;
  edge_list outputs;               // invalid where not differentiable
  std::vector<at::Tensor> inputs;  // undefined where not differentiable
  edge_list input_edges;           // of the others
  Roots roots;                     // the outputs that have a gradient
  InputHalf input_half;
  Roots weight_roots;
};

void BackwardGraph::State::begin(std::span<const at::Tensor> seeds,
                                 std::vector<at::Tensor>& input_gradients) const {
  if (phase == Phase::Empty) {
    throw ArgumentError("no microbatch is recorded for a backward; call record first");
  }
  if (phase == Phase::InputDone) {
    throw ArgumentError("backward_input has run for this microbatch; call backward_weight next");
  }
  check_seeds(seeds, outputs);
  input_gradients.assign(inputs.size(), at::Tensor());
}

void BackwardGraph::State::select_roots(std::span<const at::Tensor> seeds) {
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (seeds[i].defined() && outputs[i].is_valid()) roots.add(outputs[i], seeds[i]);
  }
}

void BackwardGraph::State::run_full(std::vector<at::Tensor>& input_gradients) {
  clear_input_gradients();
  accumulate(roots);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) input_gradients[i] = inputs[i].grad();
  }
  clear_input_gradients();
}

void BackwardGraph::State::run_input_half(std::vector<at::Tensor>& input_gradients) {
  for (const at::Tensor& input : inputs) {
    if (input.defined()) input_edges.push_back(gradient_edge(input));
  }
  variable_list gradients = input_half.run(roots, input_edges, weight_roots);
  auto gradient = gradients.begin();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    if (gradient->defined()) {
      input_gradients[i] = call_captured_leaf_hooks(inputs[i], std::move(*gradient));
    }
    ++gradient;
  }
}

void BackwardGraph::State::clear_input_gradients() const {
  for (const at::Tensor& input : inputs) {
    if (input.defined()) input.mutable_grad().reset();
  }
}

void BackwardGraph::State::clear_graph() {
  input_half.clear();
  roots.keep_first(0);
  outputs.clear();
  inputs.clear();
  input_edges.clear();
}

void BackwardGraph::State::clear() {
  clear_graph();
  weight_roots.keep_first(0);
  phase = Phase::Empty;
}

BackwardGraph::BackwardGraph() : state_(std::make_unique<State>()) {}
BackwardGraph::BackwardGraph(BackwardGraph&&) noexcept = default;
BackwardGraph& BackwardGraph::operator=(BackwardGraph&&) noexcept = default;
BackwardGraph::~BackwardGraph() = default;

void BackwardGraph::record(std::span<const at::Tensor> outputs,
                           std::span<const at::Tensor> inputs) {
  if (is_recorded()) {
    throw ArgumentError(
        "cannot record a microbatch before the backward of the last one; finish it or call reset");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_differentiable(inputs[i]) && !inputs[i].is_leaf()) {
      throw ArgumentError(fmt::format(
          "input {} has an autograd history of its own; give the stage a detached alias", i));
    }
  }
  for (const at::Tensor& output : outputs) {
    state_->outputs.push_back(is_differentiable(output) ? gradient_edge(output) : Edge());
  }
  for (const at::Tensor& input : inputs) {
    state_->inputs.push_back(is_differentiable(input) ? input : at::Tensor());
  }
  state_->phase = State::Phase::Recorded;
}

bool BackwardGraph::is_recorded() const {
  return state_->phase != State::Phase::Empty;
}

void BackwardGraph::backward(std::span<const at::Tensor> seeds,
                             std::vector<at::Tensor>& input_gradients) {
  state_->begin(seeds, input_gradients);
  try {
    state_->select_roots(seeds);
    state_->run_full(input_gradients);
  } catch (...) {
    state_->clear();
    throw;
  }
  state_->clear();
}

void BackwardGraph::backward_input(std::span<const at::Tensor> seeds,
                                   std::vector<at::Tensor>& input_gradients) {
  state_->begin(seeds, input_gradients);
  try {
    state_->select_roots(seeds);
    state_->run_input_half(input_gradients);
  } catch (...) {
    state_->clear();
    throw;
  }
  state_->clear_graph();
  state_->phase = State::Phase::InputDone;
}

void BackwardGraph::backward_weight(WeightGradients mode) {
  if (state_->phase != State::Phase::InputDone) {
    throw ArgumentError(
        "weight gradients build on the gradients of the inputs; call backward_input first");
  }
  try {
    if (mode == WeightGradients::Fused) {
      accumulate_fused(state_->weight_roots, state_->input_half.first_boundary_root());
    }
    accumulate(state_->weight_roots);
  } catch (...) {
    state_->clear();
    throw;
  }
  state_->clear();
}

void BackwardGraph::reset() {
  state_->clear();
}

}  // namespace penstock
