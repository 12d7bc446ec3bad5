#include "penstock/run/partition/module_costs.h"

#include <string_view>
#include <unordered_map>

#include "penstock/run/partition/internal/pieces.h"
#include "penstock/run/partition/internal/time_pieces.h"

namespace penstock {
namespace {

// visit(path) for "a.b.c", "a.b", "a" and "".
template <typename Visit>
void for_each_ancestor(std::string_view path, const Visit& visit) {
  visit(path);
  while (!path.empty()) {
    const std::size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
    visit(path);
  }
}

}  // namespace

std::vector<ModuleCost> module_costs(const CapturedModel& model, const Microbatch& example) {
  std::vector<ModuleCost> modules = {{.path = ""}};
  for (const std::string& path : model.module_paths) modules.push_back({.path = path});
  std::unordered_map<std::string_view, std::size_t> positions;
  for (std::size_t index = 0; index < modules.size(); ++index) {
    positions.emplace(modules[index].path, index);
  }
  const auto add = [&](std::string_view path, const auto& change) {
    for_each_ancestor(path, [&](std::string_view ancestor) {
      const auto position = positions.find(ancestor);
      if (position != positions.end()) change(modules[position->second]);
    });
  };
  for (const CapturedModel::Tensor& tensor : model.tensors) {
    if (tensor.is_buffer) continue;
    const std::size_t dot = tensor.name.rfind('.');
    add(dot == std::string::npos ? "" : std::string_view(tensor.name).substr(0, dot),
        [&](ModuleCost& module) {
          module.num_parameters += tensor.tensor.numel();
          module.parameter_bytes += static_cast<std::int64_t>(tensor.tensor.nbytes());
        });
  }
  if (example.args.empty() && example.kwargs.empty()) return modules;
  const std::vector<Piece> pieces = find_all_pieces(model);
  std::vector<LayerCost> costs(pieces.size());
  constexpr int kRuns = 5;
  time_pieces(model, cuts_between(pieces), example, kRuns, costs);
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    add(pieces[index].module, [&](ModuleCost& module) {
      module.forward += costs[index].forward;
      module.backward += costs[index].backward;
    });
  }
  return modules;
}

}  // namespace penstock
