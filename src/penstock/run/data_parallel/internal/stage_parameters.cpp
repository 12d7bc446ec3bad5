#include "penstock/run/data_parallel/internal/stage_parameters.h"

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {

std::string name_of(const PipelineStage& stage) {
  return fmt::format("stage {}", stage.index());
}

void require_plain(const PipelineStage& stage) {
  if (stage.parameter_actions() == nullptr) return;
  throw ArgumentError(
      fmt::format("stage {} is {} already", stage.index(),
                  stage.parameter_actions()->is_sharded() ? "sharded" : "replicated"));
}

std::int64_t require_bucket_bytes(const BucketOptions& options) {
  if (options.bucket_bytes > 0) return options.bucket_bytes;
  throw ArgumentError(
      fmt::format("a bucket needs room for at least one byte, not {}", options.bucket_bytes));
}

}  // namespace penstock
