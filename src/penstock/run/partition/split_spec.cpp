#include "penstock/run/partition/split_spec.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "penstock/base/text.h"
#include "penstock/run/capture/split_marker.h"
#include "penstock/run/partition/internal/graph_nodes.h"

namespace penstock {
namespace {

namespace prim = c10::prim;
using torch::jit::Node;
using torch::jit::Value;

// A node that does something, and the module it belongs to.
struct Placed {
  Node* node = nullptr;
  std::string path;
};

template <typename PathOf>
std::vector<Placed> place(const CapturedModel& model, const PathOf& path_of) {
  std::vector<Placed> nodes;
  for (Node* node : model.graph->nodes()) {
    if (node->kind() == prim::Constant || is_split_marker(node)) continue;
    nodes.push_back({node, path_of(node)});
  }
  return nodes;
}

std::vector<Placed> place_by_scope(const CapturedModel& model) {
  return place(model, [](Node* node) { return module_path_of(node); });
}

// A node belongs to the module whose parameter was used last.
std::vector<Placed> place_by_parameters(const CapturedModel& model) {
  std::unordered_map<const Value*, std::string> owners;
  for (std::size_t index = 0; index < model.tensors.size(); ++index) {
    const std::string& name = model.tensors[index].name;
    const std::size_t dot = name.rfind('.');
    owners.emplace(model.graph->inputs()[model.arguments.size() + index],
                   dot == std::string::npos ? "" : name.substr(0, dot));
  }
  std::string owner;
  return place(model, [&](Node* node) {
    for_each_read(node, [&](Value* value) {
      if (const auto found = owners.find(value); found != owners.end()) owner = found->second;
    });
    return owner;
  });
}

bool is_inside(const std::string& path, const std::string& module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

// Cuts around every run of nodes that belong to `module`; none if there is no such node.
CutPositions cuts_around(const std::vector<Placed>& nodes, const std::string& module,
                         SplitPoint point) {
  CutPositions cuts;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    const bool is_here = is_inside(nodes[index].path, module);
    const bool was_here = index > 0 && is_inside(nodes[index - 1].path, module);
    const bool is_cut =
        point == SplitPoint::Beginning ? is_here && !was_here : was_here && !is_here;
    if (is_cut) cuts.push_back(nodes[index].node);
  }
  return cuts;
}

bool has_nodes(const std::vector<Placed>& nodes, const std::string& module) {
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Placed& placed) { return is_inside(placed.path, module); });
}

[[noreturn]] void complain(const CapturedModel& model, const std::string& name) {
  std::vector<std::string_view> known(model.module_paths.begin(), model.module_paths.end());
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    throw ArgumentError(fmt::format(
        "the module {} does nothing that can be seen in the graph: it is not called, or it has no "
        "parameters and no scope; if it is called, name the call with penstock::call({}, ...)",
        quote(name, 200), quote(name, 200)));
  }
  std::string nearest;
  for (int count = 0; count < 3 && !known.empty(); ++count) {
    const std::string_view next = nearest_name(name, known);
    if (next.empty()) break;
    nearest += (nearest.empty() ? "" : ", ") + quote(next, 200);
    known.erase(std::find(known.begin(), known.end(), next));
  }
  throw ArgumentError(fmt::format("the model has no module {}{}", quote(name, 200),
                                  nearest.empty() ? "" : "; the nearest are " + nearest));
}

}  // namespace

CutPositions cuts_of_spec(const CapturedModel& model, const SplitSpec& spec) {
  const std::vector<Placed> by_scope = place_by_scope(model);
  const std::vector<Placed> by_parameters = place_by_parameters(model);
  CutPositions cuts;
  for (const auto& [name, point] : spec) {
    const auto& nodes = has_nodes(by_scope, name) ? by_scope : by_parameters;
    if (name.empty() || !has_nodes(nodes, name)) complain(model, name);
    const CutPositions found = cuts_around(nodes, name, point);
    cuts.insert(cuts.end(), found.begin(), found.end());
  }
  return cuts;
}

}  // namespace penstock
