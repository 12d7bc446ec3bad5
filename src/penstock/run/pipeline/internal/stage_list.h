#pragma once

#include <set>
#include <string>
#include <vector>

#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// The stages by index. Throws ArgumentError if one is null or there twice, if there is none, or if
// they do not agree on how many there are; and, where they must be `complete`, if one is missing.
StageList in_order(StageList stages, bool complete);

// Throws ArgumentError, with the stage and its rank, unless `stages` are those that `placement`
// gives to the ranks of this process.
void require_local_stages(const StageList& stages, const Placement& placement,
                          const std::vector<int>& local_ranks);

// Throws ArgumentError, with the stages and the parameter, if two stages of different ranks train
// one tensor, or two stages of any ranks if there are replicas: then it would depend on timing in
// which order its gradients are added, or they would be reduced twice. Parameters that the modules
// list as shared are taken care of, and are no mistake.
void require_own_parameters(const StageList& stages, const Placement& placement, bool has_replicas);

// What an optimizer of these stages trains, each tensor once: parameters, or the slices of those
// that are sharded.
std::vector<at::Tensor> parameters_of(const StageList& stages);

// The names of the keyword inputs that some of `stages` take.
std::set<std::string> keywords_of(const StageList& stages);

// Those of `stages` that `placement` gives to `rank`.
std::vector<PipelineStage*> stages_of_rank(const StageList& stages, const Placement& placement,
                                           int rank);

}  // namespace penstock
