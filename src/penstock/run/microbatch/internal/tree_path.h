#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <ATen/core/ivalue.h>

namespace penstock {

// A place in a tree, such as argument 1["mask"][0]. A list through the frames of a recursion, so
// that the text is made only when there is an error to report; it borrows all it names.
class TreePath {
 public:
  // The root of the tree called `name`.
  explicit TreePath(std::string_view name) : name_(name) {}
  // Child number `child` of `branch`, which is at `parent`.
  TreePath(const TreePath& parent, const c10::IValue& branch, std::size_t child)
      : parent_(&parent), branch_(&branch), child_(child) {}

  std::string text() const;

 private:
  std::string_view name_;
  const TreePath* parent_ = nullptr;
  const c10::IValue* branch_ = nullptr;
  std::size_t child_ = 0;
};

}  // namespace penstock
