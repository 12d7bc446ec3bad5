#include "penstock/run/microbatch/internal/tree_path.h"

#include <fmt/format.h>

#include "penstock/run/microbatch/tree.h"

namespace penstock {

std::string TreePath::text() const {
  if (parent_ == nullptr) return std::string(name_);
  std::string step = fmt::format("{}", child_);
  if (branch_->isGenericDict()) {
    std::size_t index = 0;
    for (const auto& entry : branch_->toGenericDict()) {
      if (index++ == child_) step = describe(entry.key());
    }
  }
  return fmt::format("{}[{}]", parent_->text(), step);
}

}  // namespace penstock
