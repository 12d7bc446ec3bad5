#include "penstock/run/graph/internal/interpreter_program.h"

#include <cstdint>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/library.h>

#include "penstock/run/graph/graph_error.h"
#include "penstock/run/random/random_scope.h"

namespace penstock {
namespace {

using torch::jit::Block;
using torch::jit::Node;

constexpr const char* kSeedSite = "penstock::seed_random_site";

void seed_random_site(std::int64_t site) {
  if (RandomScope* scope = RandomScope::current()) {
    scope->seed_repeated_site(static_cast<std::uint64_t>(site));
  }
}

// Conservative, so that no pass removes an operator without results.
TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def(
      torch::schema("seed_random_site(int site) -> ()", c10::AliasAnalysisKind::CONSERVATIVE),
      seed_random_site);
}

// `copy` is a copy of `original`, node by node.
void add_seeds(const StageGraph& stage, const Block& original, Block& copy,
               torch::jit::Graph& graph) {
  auto copied = copy.nodes().begin();
  for (const Node* node : original.nodes()) {
    Node* twin = *copied;
    ++copied;
    for (std::size_t block = 0; block < node->blocks().size(); ++block) {
      add_seeds(stage, *node->blocks()[block], *twin->blocks()[block], graph);
    }
    const auto site = stage.random_sites.find(node);
    if (site == stage.random_sites.end()) continue;
    const torch::jit::WithInsertPoint before(twin);
    torch::jit::Value* number = graph.insertConstant(static_cast<std::int64_t>(site->second));
    graph.insertNode(graph.create(c10::Symbol::fromQualString(kSeedSite), {number}, 0));
  }
}

class InterpreterProgram final : public GraphProgram {
 public:
  explicit InterpreterProgram(const StageGraph& stage) : stage_(stage) {
    const std::shared_ptr<torch::jit::Graph> graph = stage.graph->copy();
    add_seeds(stage, *stage.graph->block(), *graph->block(), *graph);
    code_ = torch::jit::Code(graph, "stage");
  }

  c10::IValue run(std::span<const c10::IValue> values,
                  std::span<const c10::IValue> shared) override {
    const at::AutoGradMode grad_mode(at::GradMode::is_enabled());
    stack_.clear();
    stack_.insert(stack_.end(), values.begin(), values.end());
    for (const StageGraph::Tensor& tensor : stage_.tensors) stack_.emplace_back(tensor.tensor);
    stack_.insert(stack_.end(), shared.begin(), shared.end());
    try {
      torch::jit::InterpreterState(code_).run(stack_);
    } catch (const c10::Error& error) {
      throw GraphError(error.what_without_backtrace());
    }
    return std::move(stack_.back());
  }

 private:
  const StageGraph& stage_;
  torch::jit::Code code_;
  torch::jit::Stack stack_;
};

}  // namespace

std::unique_ptr<GraphProgram> make_interpreter_program(const StageGraph& graph) {
  return std::make_unique<InterpreterProgram>(graph);
}

}  // namespace penstock
