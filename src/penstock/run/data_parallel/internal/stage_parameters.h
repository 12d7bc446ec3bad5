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

// Throws ArgumentError unless it is positive.
std::int64_t require_bucket_bytes(const BucketOptions& options);

}  // namespace penstock
