#include "penstock/run/graph/internal/slot_machine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "penstock/run/graph/graph_error.h"
#include "penstock/run/graph/internal/construct.h"
#include "penstock/run/graph/internal/operator_place.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/random/random_scope.h"

namespace penstock {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

enum class InstructionKind {
  Operator,
  VariadicOperator,  // is told the number of its inputs
  Construct,
  Unpack,
  Pass,  // hands on its input
};

struct Instruction {
  struct Input {
    std::uint32_t slot = 0;
    bool takes = false;  // the value out of the slot: this is its last use
  };
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

  InstructionKind kind = InstructionKind::Operator;
  const Node* node = nullptr;
  std::optional<torch::jit::Operation> operation;
  std::optional<std::uint64_t> random_site;
  std::vector<Input> inputs;
  std::vector<std::uint32_t> outputs;  // slots; kNowhere if nobody uses the value
};

// Aliases of a constant list are handed to operators; none of them may change it.
bool may_change_or_keep(const torch::jit::Use& use) {
  const c10::FunctionSchema* schema = use.user->maybeSchema();
  if (schema == nullptr || use.offset >= schema->arguments().size()) return true;
  return schema->arguments()[use.offset].alias_info() != nullptr;
}

bool is_constant_list(const Node& node) {
  if (node.kind() != prim::ListConstruct) return false;
  const auto inputs = node.inputs();
  const auto& uses = node.output()->uses();
  return std::all_of(inputs.begin(), inputs.end(),
                     [](const Value* input) { return input->node()->kind() == prim::Constant; }) &&
         std::none_of(uses.begin(), uses.end(), may_change_or_keep);
}

class SlotMachine final : public GraphProgram {
 public:
  explicit SlotMachine(const StageGraph& stage) : stage_(stage) {
    add_inputs();
    const torch::jit::Graph& graph = *stage.graph;
    if (graph.outputs().size() != 1) return;
    for (const Node* node : graph.nodes()) {
      if (!add_constant(*node) && !add_instruction(*node)) return;
    }
    result_.slot = slot_of_.at(graph.outputs()[0]);
    mark_last_uses();
    is_complete_ = true;
  }

  // False if there is something in the graph that it cannot run.
  bool is_complete() const { return is_complete_; }

  c10::IValue run(std::span<const c10::IValue> values,
                  std::span<const c10::IValue> shared) override {
    // A graph may switch gradients off, and an exception in it would leave them so.
    const at::AutoGradMode grad_mode(at::GradMode::is_enabled());
    for (std::size_t i = 0; i < values.size(); ++i) slots_[i] = values[i];
    const std::size_t first_shared = values.size() + stage_.tensors.size();
    for (std::size_t i = 0; i < shared.size(); ++i) slots_[first_shared + i] = shared[i];
    Instruction* instruction = instructions_.data();
    try {
      for (const Instruction* end = instruction + instructions_.size(); instruction != end;
           ++instruction) {
        execute(*instruction);
      }
    } catch (const std::exception& error) {
      clear();
      throw GraphError(fmt::format("{}: {}", operator_place(*instruction->node), cause_of(error)));
    } catch (...) {
      clear();
      throw;
    }
    c10::IValue result = take(result_);
    for (const std::uint32_t slot : unused_inputs_) slots_[slot] = {};
    return result;
  }

 private:
  void add_inputs() {
    for (const Value* input : stage_.graph->inputs()) slot_of_[input] = add_slot(false);
    for (std::size_t i = 0; i < stage_.tensors.size(); ++i) {
      const std::size_t slot = stage_.values.size() + i;
      slots_[slot] = stage_.tensors[i].tensor;
      is_constant_[slot] = true;
    }
  }

  std::uint32_t add_slot(bool is_constant) {
    slots_.emplace_back();
    is_constant_.push_back(is_constant);
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }

  // Values that are the same in every run have their slots filled for good.
  bool add_constant(const Node& node) {
    if (node.kind() == prim::Constant) {
      const std::uint32_t slot = add_slot(true);
      slots_[slot] = *torch::jit::toIValue(node.output());
      slot_of_[node.output()] = slot;
      return true;
    }
    if (!is_constant_list(node)) return false;
    for (const Value* input : node.inputs()) stack_.push_back(slots_[slot_of_.at(input)]);
    construct(node, stack_);
    const std::uint32_t slot = add_slot(true);
    slots_[slot] = std::move(stack_.back());
    stack_.clear();
    slot_of_[node.output()] = slot;
    return true;
  }

  bool add_instruction(const Node& node) {
    if (!node.blocks().empty()) return false;
    Instruction& instruction = instructions_.emplace_back();
    instruction.node = &node;
    if (is_construct(node)) {
      instruction.kind = InstructionKind::Construct;
    } else if (is_unpack(node)) {
      instruction.kind = InstructionKind::Unpack;
    } else if (node.kind() == prim::unchecked_cast) {
      instruction.kind = InstructionKind::Pass;
    } else if (const torch::jit::Operator* known = node.maybeOperator()) {
      instruction.kind = known->schema().is_vararg() ? InstructionKind::VariadicOperator
                                                     : InstructionKind::Operator;
      instruction.operation = known->getOperation(&node);
    } else {
      return false;
    }
    if (const auto site = stage_.random_sites.find(&node); site != stage_.random_sites.end()) {
      instruction.random_site = site->second;
    }
    for (const Value* input : node.inputs()) instruction.inputs.push_back({slot_of_.at(input)});
    for (const Value* output : node.outputs()) {
      const bool is_used = !output->uses().empty();
      instruction.outputs.push_back(is_used ? add_slot(false) : Instruction::kNowhere);
      if (is_used) slot_of_[output] = instruction.outputs.back();
    }
    return true;
  }

  // A value that stayed for longer would keep activations alive that nobody needs.
  void mark_last_uses() {
    std::vector<bool> is_used = is_constant_;
    const auto mark = [&is_used](Instruction::Input& input) {
      input.takes = !is_used[input.slot];
      is_used[input.slot] = true;
    };
    mark(result_);
    for (std::size_t i = instructions_.size(); i-- > 0;) {
      std::vector<Instruction::Input>& inputs = instructions_[i].inputs;
      for (std::size_t input = inputs.size(); input-- > 0;) mark(inputs[input]);
    }
    for (std::uint32_t slot = 0; slot < stage_.graph->inputs().size(); ++slot) {
      if (!is_used[slot]) unused_inputs_.push_back(slot);
    }
  }

  c10::IValue take(const Instruction::Input& input) {
    c10::IValue& slot = slots_[input.slot];
    return input.takes ? std::move(slot) : slot;
  }

  void execute(Instruction& instruction) {
    if (instruction.random_site) {
      if (RandomScope* scope = RandomScope::current()) scope->seed_site(*instruction.random_site);
    }
    for (const Instruction::Input& input : instruction.inputs) stack_.push_back(take(input));
    switch (instruction.kind) {
      case InstructionKind::VariadicOperator:
        stack_.emplace_back(static_cast<std::int64_t>(instruction.inputs.size()));
        [[fallthrough]];
      case InstructionKind::Operator:
        (*instruction.operation)(stack_);
        break;
      case InstructionKind::Construct:
        construct(*instruction.node, stack_);
        break;
      case InstructionKind::Unpack:
        unpack(*instruction.node, stack_);
        break;
      case InstructionKind::Pass:
        break;
    }
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (instruction.outputs[i] != Instruction::kNowhere) {
        slots_[instruction.outputs[i]] = std::move(stack_[i]);
      }
    }
    stack_.clear();
  }

  void clear() {
    stack_.clear();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!is_constant_[slot]) slots_[slot] = {};
    }
  }

  const StageGraph& stage_;
  bool is_complete_ = false;
  std::vector<Instruction> instructions_;
  Instruction::Input result_;
  std::vector<std::uint32_t> unused_inputs_;
  std::unordered_map<const Value*, std::uint32_t> slot_of_;

  std::vector<c10::IValue> slots_;  // the constants stay, all others are empty between runs
  std::vector<bool> is_constant_;   // by slot
  torch::jit::Stack stack_;         // of one operator
};

}  // namespace

std::unique_ptr<GraphProgram> make_slot_machine(const StageGraph& graph) {
  auto machine = std::make_unique<SlotMachine>(graph);
  if (!machine->is_complete()) return nullptr;
  return machine;
}

}  // namespace penstock
