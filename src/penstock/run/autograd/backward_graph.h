#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace penstock {

// How backward_weight() adds to the gradients of the parameters.
enum class WeightGradients {
  Exact,  // through libtorch's engine, bit for bit what a full backward adds
  Fused,  // linear layers multiply straight into their gradients: faster, rounded differently
};

// The autograd graph of one microbatch on one stage, for as long as its backward needs it.
//
//   record() -> backward()                                    B: all gradients at once
//   record() -> backward_input() ... backward_weight()        I, and W at any later time
//
// Each ends with an empty graph, which keeps its buffers for the next microbatch.
// Holds edges of the graph, never the outputs; backward_input() leaves only what the weights need.
// Gradients of parameters are added to their `.grad`. Hooks on tensors and on nodes are called
// once, and act on both halves; a node whose results a hook looks at, and which feeds both halves,
// is computed as a whole in the first. Used by one thread at a time; several graphs of one module
// may be under way.
class BackwardGraph {
 public:
  BackwardGraph();
  BackwardGraph(BackwardGraph&&) noexcept;
  BackwardGraph& operator=(BackwardGraph&&) noexcept;
  BackwardGraph(const BackwardGraph&) = delete;
  BackwardGraph& operator=(const BackwardGraph&) = delete;
  ~BackwardGraph();

  // `outputs` were computed from `inputs`, leaves that belong to this microbatch alone: their
  // `.grad` is overwritten. Undefined tensors, and such as need no gradient, are ignored in both.
  void record(std::span<const at::Tensor> outputs, std::span<const at::Tensor> inputs);

  // From record() until the last backward call of the microbatch.
  bool is_recorded() const;

  // `seeds` has the gradient of each output, undefined where there is none. `input_gradients`
  // becomes as long as the inputs, undefined where no gradient arrives; the tensors may share
  // memory with the seeds. Wrong seeds throw ArgumentError and change nothing. Whatever else is
  // thrown comes from libtorch or from a hook, and leaves the graph empty.
  void backward(std::span<const at::Tensor> seeds, std::vector<at::Tensor>& input_gradients);
  void backward_input(std::span<const at::Tensor> seeds, std::vector<at::Tensor>& input_gradients);

  // Needs nothing but an earlier backward_input().
  void backward_weight(WeightGradients mode);

  // Forgets the microbatch, wherever it is.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
