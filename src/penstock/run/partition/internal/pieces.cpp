#include "penstock/run/partition/internal/pieces.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/text.h"
#include "penstock/run/partition/internal/graph_nodes.h"
#include "penstock/run/partition/internal/value_flow.h"

namespace penstock {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// The first node of every stage.
std::vector<Node*> firsts_of(const CapturedModel& model, const ValueFlow& flow) {
  std::vector<Node*> firsts;
  for (Node* node : model.graph->nodes()) {
    if (flow.home_of(node) == static_cast<int>(firsts.size())) firsts.push_back(node);
  }
  return firsts;
}

bool can_all_be_sent(const std::vector<Value*>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](Value* value) { return can_be_sent(*value->type()); });
}

// All places where the model can be cut, and those where the least has to be sent.
struct Places {
  CutPositions possible;
  CutPositions narrow;
};

Places find_places(const CapturedModel& model) {
  const CutPositions everywhere(model.graph->nodes().begin(), model.graph->nodes().end());
  const ValueFlow finest(model, everywhere, {});
  const std::vector<Node*> firsts = firsts_of(model, finest);
  const auto is_wider = [&](int stage, std::size_t than) {
    const bool is_inside = stage >= 0 && stage + 1 < finest.num_stages();
    return !is_inside || finest.leaving(stage).size() >= than;
  };
  Places places;
  for (int stage = 1; stage < finest.num_stages(); ++stage) {
    const std::vector<Value*>& leaving = finest.leaving(stage - 1);
    if (!can_all_be_sent(leaving)) continue;
    Node* const first = firsts[static_cast<std::size_t>(stage)];
    places.possible.push_back(first);
    bool writes = false;  // then the value would have to be copied first
    for_each_write(first, [&writes](Value*) { writes = true; });
    if (!writes && is_wider(stage - 2, leaving.size()) && is_wider(stage, leaving.size())) {
      places.narrow.push_back(first);
    }
  }
  return places;
}

// The modules of each piece, in the order of the program. Where no scope is known, the owner of the
// parameters that the piece is the first to use.
std::vector<std::vector<std::string>> modules_of(const CapturedModel& model,
                                                 const ValueFlow& flow) {
  std::vector<std::vector<std::string>> modules(static_cast<std::size_t>(flow.num_stages()));
  for (Node* node : model.graph->nodes()) {
    const int home = flow.home_of(node);
    if (home == ValueFlow::kNoHome) continue;
    std::string path = module_path_of(node);
    if (!path.empty()) modules[static_cast<std::size_t>(home)].push_back(std::move(path));
  }
  for (std::size_t index = 0; index < model.tensors.size(); ++index) {
    auto& home = modules[static_cast<std::size_t>(*flow.stages_with(index).begin())];
    const std::string& name = model.tensors[index].name;
    const std::size_t dot = name.rfind('.');
    if (home.empty() && dot != std::string::npos) home.push_back(name.substr(0, dot));
  }
  return modules;
}

std::vector<Piece> make_pieces(const CapturedModel& model, const CutPositions& cuts) {
  const ValueFlow flow(model, cuts, {});
  std::vector<Piece> pieces;
  for (Node* first : firsts_of(model, flow)) pieces.push_back({.first = first});
  const auto modules = modules_of(model, flow);
  std::string last;  // pieces that do not tell belong to the module before them
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    Piece& piece = pieces[index];
    piece.module = modules[index].empty() ? last : modules[index].front();
    if (!modules[index].empty()) last = modules[index].back();
    piece.name = piece.module.empty() ? "(model)" : piece.module;
    if (last != piece.module) piece.name += " ... " + last;
  }
  for (std::size_t index = 0; index < model.tensors.size(); ++index) {
    if (model.tensors[index].is_buffer) continue;
    const auto home = static_cast<std::size_t>(*flow.stages_with(index).begin());
    pieces[home].parameter_bytes += static_cast<std::int64_t>(model.tensors[index].tensor.nbytes());
  }
  return pieces;
}

}  // namespace

std::vector<Piece> find_pieces(const CapturedModel& model, int at_least) {
  const Places places = find_places(model);
  const auto is_enough = [at_least](const CutPositions& cuts) {
    return static_cast<int>(cuts.size()) + 1 >= at_least;
  };
  if (!is_enough(places.possible)) {
    throw SplitError(
        fmt::format("the model cannot be cut into {}; it has only {} where it can be cut",
                    counted(at_least, "stage", "stages"),
                    counted(static_cast<long long>(places.possible.size()), "place", "places")));
  }
  return make_pieces(model, is_enough(places.narrow) ? places.narrow : places.possible);
}

std::vector<Piece> find_all_pieces(const CapturedModel& model) {
  return make_pieces(model, find_places(model).possible);
}

CutPositions cuts_between(const std::vector<Piece>& pieces) {
  CutPositions cuts;
  for (std::size_t index = 1; index < pieces.size(); ++index) cuts.push_back(pieces[index].first);
  return cuts;
}

}  // namespace penstock
