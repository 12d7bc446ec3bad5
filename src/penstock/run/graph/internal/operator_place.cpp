#include "penstock/run/graph/internal/operator_place.h"

#include <fmt/format.h>

namespace penstock {

std::string operator_place(const torch::jit::Node& node) {
  std::string place = node.kind().toQualString();
  if (const std::string scope = node.scopeName(); !scope.empty()) place += " in " + scope;
  if (const auto source = node.sourceRange().file_line_col()) {
    place += fmt::format(" ({}:{})", std::get<0>(*source), std::get<1>(*source));
  }
  return place;
}

}  // namespace penstock
