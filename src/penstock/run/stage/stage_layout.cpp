#include "penstock/run/stage/stage_layout.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/fingerprint.h"

namespace penstock {

std::uint64_t layout_of(const StageModule& module) {
  Fingerprint fingerprint;
  const auto add = [&fingerprint](const char* kind, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      fingerprint.add(fmt::format("{} {} {} [{}]\n", kind, name,
                                  static_cast<int>(tensor.scalar_type()),
                                  fmt::join(tensor.sizes(), ",")));
    }
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  return std::max<std::uint64_t>(fingerprint.value(), 1);
}

std::vector<std::uint64_t> known_layouts(std::span<const std::shared_ptr<PipelineStage>> stages) {
  std::vector<std::uint64_t> layouts(
      stages.empty() ? 0 : static_cast<std::size_t>(stages.front()->num_stages()), 0);
  for (const auto& stage : stages) {
    // What was true when the model was cut, of all stages alike.
    if (const auto& all = stage->model_layouts(); all.size() == layouts.size()) return all;
    layouts[static_cast<std::size_t>(stage->index())] = layout_of(stage->module());
  }
  return layouts;
}

}  // namespace penstock
