#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <c10/util/intrusive_ptr.h>

namespace torch::jit {
struct Scope;
}

namespace penstock {

// Called inside of a model's forward: the model may be cut here. Does nothing while the model runs
// as usual; a capture notes the place.
void pipe_split();

// Names what is called while the scope lives: the path of a module, relative to the scope around
// it. C++ modules do not tell a capture where their operators come from; with scopes, a split spec
// finds modules that have no parameters, and errors say where. Does nothing while the model runs as
// usual.
//
//   for (std::size_t i = 0; i < layers.size(); ++i) {
//     const ModuleScope scope("layers." + std::to_string(i));
//     hidden = layers[i](hidden);
//   }
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view path);
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;
  ModuleScope(ModuleScope&&) = delete;
  ModuleScope& operator=(ModuleScope&&) = delete;
  ~ModuleScope();

 private:
  c10::intrusive_ptr<torch::jit::Scope> before_;  // null while nothing is captured
};

// Calls a module, or anything else, under its name: call("layers.0", layers[0], hidden).
template <typename Module, typename... Inputs>
decltype(auto) call(std::string_view path, Module&& module, Inputs&&... inputs) {
  const ModuleScope scope(path);
  return std::forward<Module>(module)(std::forward<Inputs>(inputs)...);
}

}  // namespace penstock
