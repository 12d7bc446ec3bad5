#pragma once

#include <cstdint>
#include <unordered_map>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace penstock {

// The nodes of a whole model that draw random numbers, counted in the order of the program. Their
// numbers do not depend on where the model is cut, and so neither do the numbers they draw.
class RandomSites {
 public:
  explicit RandomSites(torch::jit::Graph& graph);

  // Gives the sites in `clone`, a copy of `node`, the numbers they have in the model.
  void copy(torch::jit::Node* node, torch::jit::Node* clone,
            std::unordered_map<const torch::jit::Node*, std::uint64_t>& sites) const;

 private:
  std::unordered_map<const torch::jit::Node*, std::uint64_t> sites_;
};

}  // namespace penstock
