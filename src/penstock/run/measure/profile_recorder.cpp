#include "penstock/run/measure/profile_recorder.h"

#include <algorithm>
#include <optional>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/libtorch/compat.h"

namespace penstock {
namespace {

template <typename Value>
Value median(std::vector<Value> values) {
  if (values.empty()) return Value{};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

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
  int num_lists = 0;            // begun so far
  StepClock::time_point begin;  // of the action that is running
  std::int64_t bytes_at_begin = 0;
};

ProfileRecorder::ProfileRecorder(const ProfileOptions& options) : options_(options) {}
ProfileRecorder::~ProfileRecorder() = default;

void ProfileRecorder::step_begins(const Schedule& program) {
  stages_.resize(static_cast<std::size_t>(extent_of(program).num_stages));
  while (ranks_.size() < program.ranks.size()) ranks_.push_back(std::make_unique<RankState>());
}

void ProfileRecorder::rank_begins(int rank) {
  RankState& state = *ranks_[static_cast<std::size_t>(rank)];
  ++state.num_lists;
  state.guard.emplace(c10::DebugInfoKind::PROFILER_STATE, state.memory);
}

void ProfileRecorder::rank_ends(int rank) {
  ranks_[static_cast<std::size_t>(rank)]->guard.reset();
}

void ProfileRecorder::action_begins(const ActionEvent& event) {
  RankState& state = *ranks_[static_cast<std::size_t>(event.rank)];
  state.begin = event.time;
  state.bytes_at_begin = state.memory->bytes;
}

void ProfileRecorder::action_ends(const ActionEvent& event) {
  const ActionKind kind = event.action.kind;
  const RankState& state = *ranks_[static_cast<std::size_t>(event.rank)];
  if (!is_compute(kind) || kind == ActionKind::Overlap) return;
  Samples& samples =
      stages_[static_cast<std::size_t>(event.action.stage)].kinds[static_cast<std::size_t>(kind)];
  const bool is_warm_up = state.num_lists <= options_.num_warm_up_steps;
  if (samples.are_of_warm_up && !is_warm_up) samples = {};
  samples.are_of_warm_up = is_warm_up;
  samples.times.push_back(event.time - state.begin);
  samples.kept_bytes.push_back(state.memory->bytes - state.bytes_at_begin);
  samples.message_bytes = std::max(samples.message_bytes, event.message_bytes);
}

StageCost ProfileRecorder::cost_of(int stage) const {
  const StageSamples& seen = stages_[static_cast<std::size_t>(stage)];
  const auto time_of = [&](ActionKind kind) { return median(seen.of(kind).times); };
  const auto bytes_of = [&](ActionKind kind) { return median(seen.of(kind).kept_bytes); };
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
