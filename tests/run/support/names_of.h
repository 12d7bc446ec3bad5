#pragma once

#include <string>
#include <vector>

#include "penstock/run/stage/stage_module.h"

namespace penstock {

inline std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

}  // namespace penstock
