#include "penstock/run/measure/profile_recorder.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/libtorch/compat.h"

namespace penstock {
namespace {

bool has_backwards(const Schedule& program) {
  return std::any_of(program.ranks.begin(), program.ranks.end(), [](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Action& action) {
      return is_compute(action.kind) && action.kind != ActionKind::Forward;
    });
  });
}

}  // namespace

template <typename Value>
void ProfileRecorder::Latest<Value>::add(Value value) {
  if (values_.size() < kNumSamples) {
    values_.push_back(value);
    return;
  }
  values_[next_] = value;
  next_ = (next_ + 1) % kNumSamples;
}

template <typename Value>
Value ProfileRecorder::Latest<Value>::median() const {
  if (values_.empty()) return Value{};
  std::vector<Value> values = values_;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Adds up what a thread allocates and frees.
class ProfileRecorder::MemoryCount final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, std::int64_t size, MemoryTotal /*allocated*/,
                         MemoryTotal /*reserved*/, c10::Device /*device*/) override {
    bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t bytes = 0;
};

struct ProfileRecorder::RankState {
  std::shared_ptr<MemoryCount> memory = std::make_shared<MemoryCount>();
  std::optional<c10::DebugInfoGuard> guard;
  std::thread::id thread;
  int num_training_lists = 0;  // begun so far
  int num_eval_lists = 0;
  // Of the action that is running on the thread of the rank.
  std::int64_t bytes_at_begin = 0;
  std::mutex mutex;  // guards the samples of the rank's stages, which its parts may add at one time
};

ProfileRecorder::ProfileRecorder(const ProfileOptions& options) : options_(options) {}
ProfileRecorder::~ProfileRecorder() = default;

void ProfileRecorder::step_begins(const Schedule& program) {
  is_training_ = has_backwards(program);
  stages_.resize(static_cast<std::size_t>(extent_of(program).num_stages));
  while (ranks_.size() < program.ranks.size()) ranks_.push_back(std::make_unique<RankState>());
}

void ProfileRecorder::rank_begins(int rank) {
  RankState& state = *ranks_[static_cast<std::size_t>(rank)];
  ++(is_training_ ? state.num_training_lists : state.num_eval_lists);
  state.thread = std::this_thread::get_id();
  state.guard.emplace(c10::DebugInfoKind::PROFILER_STATE, state.memory);
}

void ProfileRecorder::rank_ends(int rank) {
  ranks_[static_cast<std::size_t>(rank)]->guard.reset();
}

ProfileRecorder::Source ProfileRecorder::source_now(const RankState& state) const {
  if (is_training_) {
    return state.num_training_lists <= options_.num_warm_up_steps ? Source::TrainingWarmUp
                                                                  : Source::Training;
  }
  return state.num_eval_lists <= options_.num_warm_up_steps ? Source::EvalWarmUp : Source::Eval;
}

void ProfileRecorder::action_begins(const ActionEvent& event) {
  RankState& state = *ranks_[static_cast<std::size_t>(event.rank)];
  if (state.thread == std::this_thread::get_id()) state.bytes_at_begin = state.memory->bytes;
}

void ProfileRecorder::action_ends(const ActionEvent& event) {
  const ActionKind kind = event.action.kind;
  if (!is_compute(kind) || kind == ActionKind::Overlap) return;
  RankState& state = *ranks_[static_cast<std::size_t>(event.rank)];
  const std::lock_guard lock(state.mutex);
  Samples& samples =
      stages_[static_cast<std::size_t>(event.action.stage)].kinds[static_cast<std::size_t>(kind)];
  const Source source = source_now(state);
  if (source < samples.source) return;
  if (source > samples.source) samples = {};
  samples.source = source;
  samples.times.add(event.time - event.begin);
  samples.message_bytes = std::max(samples.message_bytes, event.message_bytes);
  if (state.thread == std::this_thread::get_id()) {
    samples.kept_bytes.add(state.memory->bytes - state.bytes_at_begin);
  }
}

StageCost ProfileRecorder::cost_of(int stage) const {
  const StageSamples& seen = stages_[static_cast<std::size_t>(stage)];
  const auto time_of = [&](ActionKind kind) { return seen.of(kind).times.median(); };
  const auto bytes_of = [&](ActionKind kind) { return seen.of(kind).kept_bytes.median(); };
  StageCost cost;
  cost.forward = time_of(ActionKind::Forward);
  cost.input_backward = time_of(ActionKind::InputBackward);
  cost.weight_backward = time_of(ActionKind::WeightBackward);
  cost.full_backward = time_of(ActionKind::FullBackward);
  if (seen.of(ActionKind::FullBackward).times.empty()) {
    cost.full_backward = cost.input_backward + cost.weight_backward;
  } else if (seen.of(ActionKind::InputBackward).times.empty()) {
    cost.input_backward = cost.full_backward / 2;
    cost.weight_backward = cost.full_backward - cost.input_backward;
  }
  cost.activation_bytes = std::max<std::int64_t>(0, bytes_of(ActionKind::Forward));
  if (!seen.of(ActionKind::InputBackward).times.empty()) {
    cost.weight_gradient_bytes =
        std::max<std::int64_t>(0, cost.activation_bytes + bytes_of(ActionKind::InputBackward) -
                                      seen.of(ActionKind::InputBackward).message_bytes);
  }
  cost.output_bytes = seen.of(ActionKind::Forward).message_bytes;
  cost.input_gradient_bytes = std::max(seen.of(ActionKind::InputBackward).message_bytes,
                                       seen.of(ActionKind::FullBackward).message_bytes);
  return cost;
}

Profile ProfileRecorder::profile(const std::vector<std::shared_ptr<PipelineStage>>& stages) const {
  Profile profile;
  for (const auto& stage : stages) {
    const bool is_measured =
        static_cast<std::size_t>(stage->index()) < stages_.size() &&
        !stages_[static_cast<std::size_t>(stage->index())].of(ActionKind::Forward).times.empty();
    if (!is_measured) {
      throw ArgumentError(
          fmt::format("stage {} was not measured yet; run a step first", stage->index()));
    }
    StageCost cost = cost_of(stage->index());
    for (const at::Tensor& parameter : stage->parameters()) {
      cost.parameter_bytes += static_cast<std::int64_t>(parameter.nbytes());
    }
    profile.costs.stages.push_back(cost);
  }
  return profile;
}

}  // namespace penstock
