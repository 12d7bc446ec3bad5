#include "penstock/run/optimizer/optimizer_state.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <ATen/Functions.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/libtorch/optimizer_key.h"
#include "penstock/run/optimizer/internal/optimizer_kinds.h"

namespace penstock {
namespace {

using torch::optim::Optimizer;

// Calls `use` with the kind that `optimizer` is of.
template <typename Use>
void with_kind_of(const Optimizer& optimizer, const Use& use) {
  const bool is_known = any_optimizer_kind([&](const auto& kind) {
    using Kind = std::remove_cvref_t<decltype(kind)>;
    if (dynamic_cast<const typename Kind::Optimizer*>(&optimizer) == nullptr) return false;
    use(kind);
    return true;
  });
  if (!is_known) {
    throw ArgumentError(fmt::format("the state of an optimizer {} is not known; known are {}",
                                    c10::demangle(typeid(optimizer).name()),
                                    fmt::join(kOptimizerNames, ", ")));
  }
}

bool is_present(std::int64_t /*count*/) {
  return true;
}
bool is_present(const at::Tensor& tensor) {
  return tensor.defined();
}

bool trains(const Optimizer& optimizer, const at::Tensor& parameter) {
  const auto& groups = optimizer.param_groups();
  return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    return std::any_of(group.params().begin(), group.params().end(),
                       [&](const at::Tensor& other) { return other.is_same(parameter); });
  });
}

// What entries are put into, one after the other; says which of them does not fit.
class StateEntryReader {
 public:
  StateEntryReader(std::string_view optimizer, const at::Tensor& parameter,
                   const std::vector<StateEntry>& entries)
      : optimizer_(optimizer), parameter_(parameter), entries_(entries) {}

  template <typename Value>
  void read(std::string_view name, Value& value, Presence presence) {
    known_.push_back(name);
    const StateEntry* found = nullptr;
    for (const StateEntry& entry : entries_) {
      if (entry.name != name) continue;
      if (found != nullptr) fail(name, "is there twice");
      found = &entry;
    }
    if (found != nullptr) {
      take(*found, value);
    } else if (presence == Presence::Always) {
      fail(name, "is missing");
    }
  }

  void require_all_known() const {
    for (const StateEntry& entry : entries_) {
      if (std::find(known_.begin(), known_.end(), entry.name) != known_.end()) continue;
      throw ArgumentError(fmt::format("the state of {} has no entry {}; it has {}", optimizer_,
                                      quote(entry.name), fmt::join(known_, ", ")));
    }
  }

 private:
  void take(const StateEntry& entry, std::int64_t& count) const {
    if (const auto* number = std::get_if<std::int64_t>(&entry.value)) {
      count = *number;
      return;
    }
    const auto& tensor = std::get<at::Tensor>(entry.value);
    if (!tensor.defined() || tensor.numel() != 1) {
      fail(entry.name, "must be a count: an integer, or a tensor with one element");
    }
    count = tensor.item().toLong();
  }

  void take(const StateEntry& entry, at::Tensor& value) const {
    const auto* tensor = std::get_if<at::Tensor>(&entry.value);
    if (tensor == nullptr || !tensor->defined()) fail(entry.name, "must be a tensor");
    if (tensor->sizes() != parameter_.sizes()) {
      fail(entry.name,
           fmt::format("has the sizes [{}], but the parameter has [{}]",
                       fmt::join(tensor->sizes(), ", "), fmt::join(parameter_.sizes(), ", ")));
    }
    value = *tensor;
  }

  [[noreturn]] void fail(std::string_view name, std::string_view problem) const {
    throw ArgumentError(
        fmt::format("entry {} of the state of {} {}", quote(name), optimizer_, problem));
  }

  std::string_view optimizer_;
  const at::Tensor& parameter_;
  const std::vector<StateEntry>& entries_;
  std::vector<std::string_view> known_;
};

}  // namespace

std::vector<StateEntry> state_of(const Optimizer& optimizer, const at::Tensor& parameter) {
  std::vector<StateEntry> entries;
  with_kind_of(optimizer, [&](const auto& kind) {
    using Kind = std::remove_cvref_t<decltype(kind)>;
    const auto found = optimizer.state().find(optimizer_key(parameter));
    if (found == optimizer.state().end()) return;
    const auto& state = static_cast<const typename Kind::State&>(*found->second);
    Kind::for_each_entry(state, [&](const char* name, const auto& value, Presence /*presence*/) {
      if (is_present(value)) entries.push_back({name, value});
    });
  });
  return entries;
}

void set_state(Optimizer& optimizer, const at::Tensor& parameter,
               const std::vector<StateEntry>& entries) {
  with_kind_of(optimizer, [&](const auto& kind) {
    using Kind = std::remove_cvref_t<decltype(kind)>;
    if (!trains(optimizer, parameter)) {
      throw ArgumentError(
          fmt::format("the {} optimizer does not train this parameter of sizes "
                      "[{}], so it keeps no state of it",
                      Kind::kName, fmt::join(parameter.sizes(), ", ")));
    }
    // An Adagrad without state does not make one in its first step, as the others do.
    if (entries.empty() && !std::is_same_v<Kind, AdagradKind>) {
      optimizer.state().erase(optimizer_key(parameter));
      return;
    }
    auto state = std::make_unique<typename Kind::State>();
    StateEntryReader reader(Kind::kName, parameter, entries);
    Kind::for_each_entry(*state, [&](const char* name, auto& value, Presence presence) {
      reader.read(name, value, presence);
    });
    reader.require_all_known();
    optimizer.state()[optimizer_key(parameter)] = std::move(state);
  });
}

std::vector<std::string> tensor_entries(const Optimizer& optimizer) {
  std::vector<std::string> names;
  with_kind_of(optimizer, [&](const auto& kind) {
    using Kind = std::remove_cvref_t<decltype(kind)>;
    const typename Kind::State state;
    Kind::for_each_entry(state, [&](const char* name, const auto& value, Presence /*presence*/) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, at::Tensor>) {
        names.emplace_back(name);
      }
    });
  });
  return names;
}

std::string optimizer_name(const Optimizer& optimizer) {
  std::string name;
  with_kind_of(optimizer,
               [&](const auto& kind) { name = std::remove_cvref_t<decltype(kind)>::kName; });
  return name;
}

}  // namespace penstock
