#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/run/stage/pipeline_stage.h"
#include "penstock/run/stage/stage_module.h"

namespace penstock {

// A fingerprint of the tensors that a stage has: names, element types and shapes of its parameters
// and buffers, but not their values. The same in every process, and never 0.
std::uint64_t layout_of(const StageModule& module);

// Of every stage of the model, as far as these stages know: 0 where they do not.
std::vector<std::uint64_t> known_layouts(std::span<const std::shared_ptr<PipelineStage>> stages);

}  // namespace penstock
