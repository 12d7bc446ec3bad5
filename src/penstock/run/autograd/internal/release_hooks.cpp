#include "penstock/run/autograd/internal/release_hooks.h"

#include <algorithm>
#include <utility>

#include "penstock/base/assert.h"

namespace penstock {

using torch::autograd::FunctionPostHook;
using torch::autograd::variable_list;

// The engine assigns the result to the very list it passes. Handing that back, instead of a copy,
// saves an allocation per node.
variable_list ReleaseHooks::Hook::operator()(const variable_list& outputs,
                                             const variable_list& /*inputs*/) {
  node->release_variables();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the engine's own list, not a constant
  return std::move(const_cast<variable_list&>(outputs));
}

void ReleaseHooks::add(torch::autograd::Node& node) {
  if (spare_.empty()) spare_.emplace_back().push_back(std::make_unique<Hook>());
  List& list = spare_.back();
  auto* hook = static_cast<Hook*>(list.front().get());
  hook->node = &node;
  placed_.push_back(hook);
  if (node.post_hooks().empty()) {
    node.post_hooks().swap(list);
  } else {
    node.add_post_hook(std::move(list.front()));
  }
  spare_.pop_back();
}

void ReleaseHooks::remove_all() {
  spare_.reserve(spare_.size() + placed_.size());
  for (const Hook* hook : placed_) spare_.push_back(take_off(*hook));
  placed_.clear();
}

ReleaseHooks::List ReleaseHooks::take_off(const Hook& hook) {
  List& hooks = hook.node->post_hooks();
  const auto place = std::find_if(hooks.begin(), hooks.end(),
                                  [&hook](const auto& other) { return other.get() == &hook; });
  PENSTOCK_ASSERT(place != hooks.end(), "nobody else removes our hooks");
  if (hooks.size() == 1) return std::exchange(hooks, List());
  List list;
  list.push_back(std::move(*place));
  hooks.erase(place);
  return list;
}

}  // namespace penstock
