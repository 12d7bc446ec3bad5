#include "penstock/run/data_parallel/internal/stage_parameters.h"

#include <map>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

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

void require_memory_of_its_own(const PipelineStage& stage, const NamedTensors& parameters) {
  std::map<const c10::StorageImpl*, std::string> owners;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
      throw ArgumentError(
          fmt::format("the parameter {} of stage {} is not dense; only dense "
                      "parameters can be sharded, replicate the stage",
                      quote(name), stage.index()));
    }
    const auto [owner, is_first] = owners.emplace(tensor.storage().unsafeGetStorageImpl(), name);
    if (is_first) continue;
    throw ArgumentError(
        fmt::format("the parameters {} and {} of stage {} share memory and cannot be sharded; "
                    "replicate the stage, or make them one tensor",
                    quote(owner->second), quote(name), stage.index()));
  }
  for (const auto& [name, buffer] : stage.module().named_buffers()) {
    if (!buffer.defined() || !buffer.has_storage()) continue;
    const auto owner = owners.find(buffer.storage().unsafeGetStorageImpl());
    if (owner == owners.end()) continue;
    throw ArgumentError(
        fmt::format("the buffer {} of stage {} shares memory with the parameter {}, which cannot "
                    "be sharded then; replicate the stage",
                    quote(name), stage.index(), quote(owner->second)));
  }
}

void require_no_gradients(const PipelineStage& stage, const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.grad().defined()) continue;
    throw ArgumentError(
        fmt::format("the parameter {} of stage {} has a gradient already; shard the stage before "
                    "it is trained, or clear the gradient",
                    quote(name), stage.index()));
  }
}

std::int64_t require_bucket_bytes(const BucketOptions& options) {
  if (options.bucket_bytes > 0) return options.bucket_bytes;
  throw ArgumentError(
      fmt::format("a bucket needs room for at least one byte, not {}", options.bucket_bytes));
}

}  // namespace penstock
