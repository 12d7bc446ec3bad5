#include "penstock/run/pipeline/internal/replica_links.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/core/List.h>
#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/pipeline/internal/stage_list.h"

namespace penstock {
namespace {

// What all replicas must agree on before they train, of the stages of a rank.
c10::List<std::int64_t> fingerprints_of_all(std::span<DataParallelParameters* const> list) {
  c10::List<std::int64_t> all;
  for (const DataParallelParameters* parameters : list) {
    for (const std::int64_t fingerprint : parameters->fingerprints()) all.push_back(fingerprint);
  }
  return all;
}

// The parameter that has the fingerprints at `place` of the list.
std::string name_at(std::span<DataParallelParameters* const> list, std::size_t place) {
  std::size_t parameter = place / 2;
  for (const DataParallelParameters* parameters : list) {
    const std::vector<std::string> names = parameters->names();
    if (parameter < names.size()) {
      return fmt::format("the parameter {} of {}", quote(names[parameter]), parameters->owner());
    }
    parameter -= names.size();
  }
  return "the number of parameters";
}

NamedTensors shared_tensors_of(const StageList& stages) {
  NamedTensors shared;
  for (const auto& stage : stages) {
    for (const auto& use : stage->module().shared_parameters()) {
      const bool is_known = std::any_of(shared.begin(), shared.end(), [&use](const auto& entry) {
        return entry.second.is_same(use.second);
      });
      if (!is_known) shared.push_back(use);
    }
  }
  return shared;
}

}  // namespace

ReplicaLinks::ReplicaLinks(const ScheduleOptions& options, const Schedule& program,
                           const StageList& stages, const Placement& placement,
                           std::span<const int> local_ranks)
    : group_(options.data_group), local_ranks_(local_ranks.begin(), local_ranks.end()) {
  if (group_ != nullptr && group_->num_ranks() > 1) {
    position_ = {.index = group_->local_ranks().front(), .count = group_->num_ranks()};
    for (const auto& stage : stages) {
      if (stage->parameter_actions() == nullptr) replicate_stage(*stage);
    }
    NamedTensors shared = shared_tensors_of(stages);
    if (!shared.empty()) {
      shared_ = std::make_unique<ReplicatedParameters>("the stages that share parameters",
                                                       std::move(shared), BucketOptions{});
    }
  }
  for (const int rank : local_ranks_) {
    std::vector<DataParallelParameters*>& list = parameters_.emplace_back();
    for (PipelineStage* stage : stages_of_rank(stages, placement, rank)) {
      auto* parameters = dynamic_cast<DataParallelParameters*>(stage->parameter_actions());
      if (parameters != nullptr) list.push_back(parameters);
    }
    if (shared_ != nullptr && parameters_.size() == 1) list.push_back(shared_.get());
    int num_channels = ReplicaLink::kNumOwnChannels;
    for (const DataParallelParameters* parameters : list)
      num_channels += parameters->num_channels();
    links_.push_back(nullptr);
    if (position_.count > 1) {
      const int num_threads =
          static_cast<int>(local_ranks_.size()) * group_->num_ranks_in_process();
      links_.back() = std::make_unique<ReplicaLink>(
          *group_, program.actions_of(rank), num_channels,
          FabricOptions{.deadline = options.deadline, .num_busy_threads = num_threads});
    } else if (!list.empty()) {
      links_.back() = std::make_unique<ReplicaLink>();
    }
    int channel = ReplicaLink::kNumOwnChannels;
    for (DataParallelParameters* parameters : list) {
      parameters->connect(*links_.back(), channel);
      channel += parameters->num_channels();
    }
  }
}

void ReplicaLinks::begin_step(bool is_training, const Schedule& program) {
  for (std::size_t index = 0; index < links_.size(); ++index) {
    if (links_[index] == nullptr) continue;
    links_[index]->begin_step(program.actions_of(local_ranks_[index]));
    links_[index]->bytes().begin_step();
  }
  if (position_.count > 1 && compared_at_ != group_->num_recoveries()) {
    require_same_parameters();
    compared_at_ = group_->num_recoveries();
  }
  if (shared_ != nullptr) shared_->begin_step(is_training);
}

// Replica 0 is the one that is right, if they differ.
void ReplicaLinks::require_same_parameters() const {
  for (std::size_t index = 0; index < links_.size(); ++index) {
    const auto& list = parameters_[index];
    const std::vector<Message> told =
        links_[index]->exchange({fingerprints_of_all(list)}, "what it knows of its parameters");
    const std::vector<std::int64_t> expected = told.front().front().toIntVector();
    for (std::size_t replica = 1; replica < told.size(); ++replica) {
      const std::vector<std::int64_t> found = told[replica].front().toIntVector();
      const auto [first, other] =
          std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
      if (first == found.end() && other == expected.end()) continue;
      const auto place = static_cast<std::size_t>(first - found.begin());
      throw ArgumentError(fmt::format(
          "replica {} and replica 0 do not have the same model: {} differs, in {}; give "
          "all replicas the same parameters, from one seed or one checkpoint",
          replica, name_at(list, place),
          place % 2 == 0 ? "name, type, shape or whether it is trained" : "its values"));
    }
  }
}

void ReplicaLinks::end_step() {
  for (const auto& link : links_) {
    if (link != nullptr) link->end_step();
  }
  if (shared_ != nullptr) shared_->end_step();
}

std::exception_ptr ReplicaLinks::fail_step(std::exception_ptr failure) {
  for (const auto& link : links_) {
    if (link != nullptr) failure = link->fail_step(std::move(failure));
  }
  if (shared_ != nullptr) shared_->end_step();
  return failure;
}

void ReplicaLinks::stop() noexcept {
  for (const auto& link : links_) {
    if (link != nullptr) link->stop();
  }
}

std::vector<at::Tensor> ReplicaLinks::exchange(const at::Tensor& value) {
  if (position_.count == 1) return {value};
  std::vector<at::Tensor> values;
  for (const Message& told : links_.front()->exchange({value}, "what it has to tell")) {
    values.push_back(told.front().toTensor());
  }
  return values;
}

double ReplicaLinks::sum_over_replicas(double value) {
  if (position_.count == 1) return value;
  double sum = 0;
  for (const Message& told : links_.front()->exchange({value}, "the rows of the step")) {
    sum += told.front().toDouble();
  }
  return sum;
}

void ReplicaLinks::reduce_shared() {
  if (shared_ == nullptr) return;
  shared_->reduce_gradients();
  links_.front()->finish();
}

std::vector<ParameterBytes> ReplicaLinks::bytes(const StageList& stages,
                                                const Placement& placement) const {
  std::vector<ParameterBytes> bytes;
  for (std::size_t index = 0; index < links_.size(); ++index) {
    bytes.push_back(links_[index] == nullptr ? ParameterBytes() : links_[index]->bytes().now());
    for (const PipelineStage* stage : stages_of_rank(stages, placement, local_ranks_[index])) {
      if (stage->parameter_actions() == nullptr || !stage->parameter_actions()->is_sharded()) {
        continue;
      }
      for (const at::Tensor& slice : stage->parameters()) {
        if (!slice.grad().defined()) continue;
        bytes.back().slice_gradients += static_cast<std::int64_t>(slice.grad().nbytes());
      }
    }
  }
  return bytes;
}

}  // namespace penstock
