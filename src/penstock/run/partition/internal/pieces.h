#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/run/partition/split_graph.h"

namespace penstock {

// A run of nodes that a policy keeps together.
struct Piece {
  torch::jit::Node* first = nullptr;
  std::string module = {};           // the path of its first module that is known
  std::string name = {};             // of its modules: "layers.0", "layers.0 ... layers.1"
  std::int64_t parameter_bytes = 0;  // of those that no earlier piece uses
};

// Cuts a model wherever fewer tensors are on their way than right before or after. If that makes
// less than `at_least` pieces, wherever it can be cut at all; throws SplitError if that is too few
// still.
std::vector<Piece> find_pieces(const CapturedModel& model, int at_least);

// Cuts it wherever it can be cut.
std::vector<Piece> find_all_pieces(const CapturedModel& model);

// Where the pieces begin, without the first.
CutPositions cuts_between(const std::vector<Piece>& pieces);

}  // namespace penstock
