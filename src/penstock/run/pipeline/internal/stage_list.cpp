#include "penstock/run/pipeline/internal/stage_list.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

void require_complete(const StageList& stages) {
  const int num_stages = static_cast<int>(stages.size());
  for (int index = 0; index < num_stages; ++index) {
    const PipelineStage& stage = *stages[static_cast<std::size_t>(index)];
    if (stage.num_stages() != num_stages) {
      throw ArgumentError(
          fmt::format("stage {} says that there are {}, but the pipeline was given {}",
                      stage.index(), counted(stage.num_stages(), "stage", "stages"), num_stages));
    }
    if (stage.index() != index) {
      throw ArgumentError(
          fmt::format("stage {} is {}; a pipeline needs each stage once", index,
                      stage.index() < index ? "there twice, or its place is taken" : "missing"));
    }
  }
}

void require_agreement(const StageList& stages) {
  const PipelineStage& first = *stages.front();
  for (std::size_t index = 1; index < stages.size(); ++index) {
    const PipelineStage& stage = *stages[index];
    if (stage.num_stages() != first.num_stages()) {
      throw ArgumentError(fmt::format("stage {} says that there are {}, but stage {} says {}",
                                      first.index(), counted(first.num_stages(), "stage", "stages"),
                                      stage.index(), stage.num_stages()));
    }
    if (stage.index() == stages[index - 1]->index()) {
      throw ArgumentError(fmt::format("stage {} is there twice", stage.index()));
    }
  }
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

StageList in_order(StageList stages, bool complete) {
  if (stages.empty()) throw ArgumentError("a pipeline needs at least one stage");
  for (const auto& stage : stages) {
    if (stage == nullptr) throw ArgumentError("one of the stages is null");
  }
  std::sort(stages.begin(), stages.end(),
            [](const auto& left, const auto& right) { return left->index() < right->index(); });
  if (complete) {
    require_complete(stages);
  } else {
    require_agreement(stages);
  }
  return stages;
}

void require_local_stages(const StageList& stages, const Placement& placement,
                          const std::vector<int>& local_ranks) {
  std::set<int> given;
  for (const auto& stage : stages) {
    const int rank = placement.rank_of(stage->index());
    if (std::find(local_ranks.begin(), local_ranks.end(), rank) == local_ranks.end()) {
      throw ArgumentError(
          fmt::format("stage {} belongs to rank {}, but this process is {}; make only the stages "
                      "that the schedule gives to it",
                      stage->index(), rank, ranks_text(local_ranks)));
    }
    given.insert(stage->index());
  }
  for (const int rank : local_ranks) {
    for (const int stage : placement.stages_of(rank)) {
      if (given.contains(stage)) continue;
      throw ArgumentError(
          fmt::format("stage {} is missing; the schedule gives rank {} the stages {}", stage, rank,
                      fmt::join(placement.stages_of(rank), ", ")));
    }
  }
}

void require_own_parameters(const StageList& stages, const Placement& placement,
                            bool has_replicas) {
  std::unordered_map<const c10::TensorImpl*, const PipelineStage*> users;
  for (const auto& stage : stages) {
    std::unordered_set<const c10::TensorImpl*> shared;
    for (const auto& [name, tensor] : stage->module().shared_parameters()) {
      shared.insert(tensor.unsafeGetTensorImpl());
    }
    for (const auto& [name, tensor] : stage->module().named_parameters()) {
      if (!tensor.requires_grad() || shared.contains(tensor.unsafeGetTensorImpl())) continue;
      const PipelineStage* other =
          users.try_emplace(tensor.unsafeGetTensorImpl(), stage.get()).first->second;
      const int rank = placement.rank_of(stage->index());
      const int other_rank = placement.rank_of(other->index());
      if (other == stage.get() || (rank == other_rank && !has_replicas)) continue;
      throw ArgumentError(fmt::format(
          "stage {} on rank {} and stage {} on rank {} both train the parameter {}, and {}; take "
          "all stages from one Pipe, which knows what they share{}",
          other->index(), other_rank, stage->index(), rank, quote(name),
          has_replicas ? "replicas would add up its gradient for each of them"
                       : "which of them adds to its gradient first would be a matter of timing",
          has_replicas ? "" : ", or put these stages on one rank"));
    }
  }
}

std::vector<at::Tensor> parameters_of(const StageList& stages) {
  std::vector<at::Tensor> list;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& stage : stages) {
    if (stage->parameter_actions() != nullptr && stage->parameter_actions()->is_sharded()) {
      for (at::Tensor& slice : stage->parameters()) list.push_back(std::move(slice));
      continue;
    }
    for (const auto& [name, tensor] : stage->module().named_parameters()) {
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) list.push_back(tensor);
    }
  }
  return list;
}

std::set<std::string> keywords_of(const StageList& stages) {
  std::set<std::string> keywords;
  for (const auto& stage : stages) {
    for (std::string& name : stage->module().keywords()) keywords.insert(std::move(name));
  }
  return keywords;
}

std::vector<PipelineStage*> stages_of_rank(const StageList& stages, const Placement& placement,
                                           int rank) {
  std::vector<PipelineStage*> chosen;
  for (const auto& stage : stages) {
    if (placement.rank_of(stage->index()) == rank) chosen.push_back(stage.get());
  }
  return chosen;
}

}  // namespace penstock
