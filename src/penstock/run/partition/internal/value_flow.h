#pragma once

#include <cstddef>
#include <set>
#include <unordered_map>
#include <vector>

#include "penstock/run/partition/split_graph.h"

namespace c10 {
struct Type;
}
namespace torch::jit {
struct Value;
}

namespace penstock {

// Whether values of this type may go from one stage to another.
bool can_be_sent(const c10::Type& type);

// Which stage each operator of a model belongs to, and which values go from stage to stage.
class ValueFlow {
 public:
  ValueFlow(const CapturedModel& model, const CutPositions& cuts, const SplitGraphOptions& options);

  int num_stages() const { return num_stages_; }

  // Markers are in no stage. Constants, and what puts values into lists, tuples and dicts, are in
  // every stage that uses them; all other nodes are in one.
  bool is_in(torch::jit::Node* node, int stage) const;
  static constexpr int kNoHome = -1;
  int home_of(torch::jit::Node* node) const;  // the stage of a node that is in one, or kNoHome

  // The values that stage `stage` hands to the next one, in the order of the program.
  const std::vector<torch::jit::Value*>& leaving(int stage) const {
    return leaving_[static_cast<std::size_t>(stage)];
  }

  // The stages that have one of the model's tensors as their own; a transmitted one is only in the
  // first of those that use it. A tensor that is not used is in the first stage.
  const std::set<int>& stages_with(std::size_t tensor) const { return stages_with_[tensor]; }

 private:
  void place_nodes(const CutPositions& cuts);
  void place_uses();
  void use(torch::jit::Value* value, int stage);
  void place_tensors(const SplitGraphOptions& options);
  void find_leaving();
  static bool is_made_where_used(torch::jit::Node* node);
  bool is_unpacking(torch::jit::Node* node) const;

  const CapturedModel& model_;
  int num_stages_ = 1;
  std::unordered_map<const torch::jit::Node*, std::set<int>> stages_of_;
  std::unordered_map<const torch::jit::Value*, std::set<int>> uses_;
  std::unordered_map<const torch::jit::Value*, int> homes_;  // where a value that may leave is made
  std::vector<std::set<int>> stages_with_;                   // by tensor of the model
  std::vector<std::vector<torch::jit::Value*>> leaving_;     // by stage
};

}  // namespace penstock
