#include "penstock/run/checkpoint/load_checkpoint.h"

#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/checkpoint_reader.h"
#include "penstock/run/checkpoint/internal/sliced_places.h"
#include "penstock/run/data_parallel/sharded_parameters.h"

namespace penstock {
namespace {

using torch::optim::Optimizer;

std::unordered_set<const c10::TensorImpl*> trained_by(const Optimizer& optimizer) {
  std::unordered_set<const c10::TensorImpl*> tensors;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      tensors.insert(parameter.unsafeGetTensorImpl());
    }
  }
  return tensors;
}

void require_same_optimizer(const CheckpointManifest& manifest, const Optimizer& optimizer,
                            const std::filesystem::path& checkpoint) {
  const std::string name = optimizer_name(optimizer);
  if (manifest.optimizer == name) return;
  throw CheckpointError(
      manifest.optimizer.empty()
          ? fmt::format("{}: has no state of an optimizer; load without one to begin with a new {}",
                        checkpoint.string(), name)
          : fmt::format("{}: has the state of {}, not of {}; load without an optimizer to begin "
                        "with a new one",
                        checkpoint.string(), manifest.optimizer, name));
}

// What of a whole tensor in the checkpoint is wanted: all of it, or a slice.
class Part {
 public:
  Part() = default;
  Part(const ShardedParameters& sharded, const SlicedPlace& place)
      : sharded_(&sharded), slice_(place.slice), whole_(place.whole) {}

  bool is_all() const { return sharded_ == nullptr; }
  // Has the type and the shape that the checkpoint must have, and no memory.
  const at::Tensor& whole() const { return whole_; }
  at::Tensor of(const at::Tensor& whole) const {
    return is_all() ? whole : sharded_->cut(slice_, whole);
  }

 private:
  const ShardedParameters* sharded_ = nullptr;
  std::size_t slice_ = 0;
  at::Tensor whole_;
};

// A tensor to be filled, under one of its names.
struct WantedTensor {
  std::string entry;
  at::Tensor tensor;
  Part part;
};

// A parameter, and what its optimizer is to know about it.
struct WantedState {
  Optimizer* optimizer = nullptr;
  at::Tensor parameter;
  std::vector<std::string> entries;  // one per name of the parameter
  Part part;
  std::vector<StateEntry> state;
};

// Before anything of the model is changed, so a state that does not fit is named here.
void cut_state(WantedState& wanted) {
  if (wanted.part.is_all()) return;
  for (StateEntry& entry : wanted.state) {
    if (auto* tensor = std::get_if<at::Tensor>(&entry.value)) *tensor = wanted.part.of(*tensor);
  }
}

// What is read, found and checked before anything is changed.
class Loading {
 public:
  Loading(const std::filesystem::path& checkpoint, const std::vector<RankState>& states)
      : checkpoint_(checkpoint), reader_(checkpoint) {
    for (const RankState& state : states) add(state);
  }

  void require_all_wanted() {
    for (const std::string& entry : reader_.entries()) {
      if (wanted_entries_.contains(entry)) continue;
      throw CheckpointError(
          fmt::format("{}: the model has no tensor {}, which the checkpoint "
                      "holds; was it saved from another model?",
                      checkpoint_.string(), quote(entry, 80)));
    }
  }

  void prepare() {
    reader_.open({wanted_entries_.begin(), wanted_entries_.end()}, !states_.empty());
    for (const WantedTensor& wanted : tensors_) {
      if (wanted.part.is_all()) {
        reader_.require_fit(wanted.entry, wanted.tensor);
      } else {
        reader_.require_same_shape(wanted.entry, wanted.part.whole());
      }
    }
    require_one_value_each();
    for (WantedState& wanted : states_) {
      for (const std::string& entry : wanted.entries) {
        if (wanted.state.empty()) wanted.state = reader_.optimizer_state(entry);
      }
      naming(wanted, [&] { cut_state(wanted); });
    }
  }

  TrainingPosition finish() {
    for (WantedState& wanted : states_) {
      naming(wanted, [&] { set_state(*wanted.optimizer, wanted.parameter, wanted.state); });
    }
    const at::NoGradGuard no_gradients;
    for (const WantedTensor& wanted : tensors_) {
      if (wanted.part.is_all()) {
        reader_.read_into(wanted.entry, wanted.tensor);
      } else {
        wanted.tensor.copy_(wanted.part.of(reader_.read(wanted.entry)));
      }
    }
    return reader_.manifest().position;
  }

 private:
  template <typename Work>
  void naming(const WantedState& wanted, const Work& work) const {
    try {
      work();
    } catch (const ArgumentError& error) {
      throw CheckpointError(fmt::format("{}: {}: {}", checkpoint_.string(),
                                        quote(wanted.entries.front(), 80), error.what()));
    }
  }

  // A tensor with several names may have been several tensors when it was saved.
  void require_one_value_each() {
    std::map<const c10::TensorImpl*, const std::string*> entries;
    for (const WantedTensor& wanted : tensors_) {
      const auto [first, is_new] =
          entries.emplace(wanted.tensor.unsafeGetTensorImpl(), &wanted.entry);
      if (is_new || reader_.read(wanted.entry).equal(reader_.read(*first->second))) continue;
      throw CheckpointError(
          fmt::format("{}: {} and {} are one tensor of the model, but differ in the checkpoint",
                      checkpoint_.string(), quote(*first->second, 80), quote(wanted.entry, 80)));
    }
  }

  void add(const RankState& state) {
    std::unordered_set<const c10::TensorImpl*> trained;
    if (state.optimizer != nullptr) {
      require_same_optimizer(reader_.manifest(), *state.optimizer, checkpoint_);
      trained = trained_by(*state.optimizer);
    }
    std::map<const c10::TensorImpl*, WantedState> states;
    const auto want = [&](const std::string& name, const at::Tensor& tensor, const Part& part) {
      const std::string& entry = reader_.entry_of(name);
      wanted_entries_.insert(entry);
      if (seen_.emplace(entry, tensor.unsafeGetTensorImpl()).second) {
        tensors_.push_back({entry, tensor, part});
      }
      if (!trained.contains(tensor.unsafeGetTensorImpl())) return;
      WantedState& wanted = states[tensor.unsafeGetTensorImpl()];
      wanted.optimizer = state.optimizer;
      wanted.parameter = tensor;
      wanted.entries.push_back(entry);
      wanted.part = part;
    };
    for (const auto& [name, tensor] : state.tensors) want(name, tensor, {});
    for (const SlicedParameters& sliced : state.sliced) {
      for (const SlicedPlace& place : places_of(sliced)) {
        want(place.name, place.tensor, {*sliced.parameters, place});
      }
    }
    for (auto& [tensor, wanted] : states) states_.push_back(std::move(wanted));
  }

  const std::filesystem::path& checkpoint_;
  CheckpointReader reader_;
  std::set<std::string> wanted_entries_;
  std::set<std::pair<std::string, const c10::TensorImpl*>> seen_;
  std::vector<WantedTensor> tensors_;
  std::vector<WantedState> states_;
};

}  // namespace

TrainingPosition load_checkpoint(const std::filesystem::path& checkpoint,
                                 const std::vector<RankState>& states, const LoadOptions& options) {
  Loading loading(checkpoint, states);
  if (options.needs_all) loading.require_all_wanted();
  loading.prepare();
  return loading.finish();
}

}  // namespace penstock
