#include "penstock/run/autograd/internal/release_hooks.h"

#include <algorithm>
#include <utility>

#include "penstock/base/assert.h"

namespace penstock {

using torch::autograd::FunctionPostHook;
using torch::autograd::variable_list;

variable_list ReleaseHooks::Hook::operator()(const variable_list& outputs,
                                             const variable_list& /*inputs*/) {
  node->release_variables();
  return outputs;
}

void ReleaseHooks::add(torch::autograd::Node& node) {
  if (spare_.empty()) spare_.push_back(std::make_unique<Hook>());
  Hook* hook = spare_.back().get();
  hook->node = &node;
  placed_.push_back(hook);
  node.add_post_hook(std::move(spare_.back()));
  spare_.pop_back();
}

void ReleaseHooks::remove_all() {
  spare_.reserve(spare_.size() + placed_.size());
  for (Hook* hook : placed_) {
    std::vector<std::unique_ptr<FunctionPostHook>>& hooks = hook->node->post_hooks();
    const auto place = std::find_if(hooks.begin(), hooks.end(),
                                    [hook](const auto& other) { return other.get() == hook; });
    PENSTOCK_ASSERT(place != hooks.end(), "nobody else removes our hooks");
    static_cast<void>(place->release());
    hooks.erase(place);
    spare_.emplace_back(hook);
  }
  placed_.clear();
}

}  // namespace penstock
