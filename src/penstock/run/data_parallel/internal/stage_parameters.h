#pragma once

#include <cstdint>
#include <string>

#include "penstock/run/data_parallel/data_parallel_parameters.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {

// "stage 2", for messages.
std::string name_of(const PipelineStage& stage);

// Throws ArgumentError if the stage is replicated or sharded already.
void require_plain(const PipelineStage& stage);

// Throws ArgumentError, with the name, unless each of `parameters` is dense and shares memory with
// nothing else of the stage: it is taken away when the stage is resharded.
void require_memory_of_its_own(const PipelineStage& stage, const NamedTensors& parameters);

// Throws ArgumentError if one of `parameters` has a gradient.
void require_no_gradients(const PipelineStage& stage, const NamedTensors& parameters);

// Throws ArgumentError unless it is positive.
std::int64_t require_bucket_bytes(const BucketOptions& options);

}  // namespace penstock
