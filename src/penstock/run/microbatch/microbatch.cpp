#include "penstock/run/microbatch/microbatch.h"

#include <cstddef>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

void require_same_arguments(const Microbatch& first, const Microbatch& other, std::size_t index) {
  if (other.args.size() != first.args.size()) {
    throw ArgumentError(
        fmt::format("microbatch {} has {}, microbatch 0 has {}; all must be called alike", index,
                    counted(static_cast<long long>(other.args.size()), "positional argument",
                            "positional arguments"),
                    first.args.size()));
  }
  for (const auto& [name, value] : first.kwargs) {
    if (other.kwargs.contains(name)) continue;
    throw ArgumentError(fmt::format(
        "microbatch {} lacks keyword {}, which microbatch 0 has; all must be called alike", index,
        quote(name)));
  }
  for (const auto& [name, value] : other.kwargs) {
    if (first.kwargs.contains(name)) continue;
    throw ArgumentError(fmt::format(
        "microbatch {} has keyword {}, which microbatch 0 lacks; all must be called alike", index,
        quote(name)));
  }
}

}  // namespace

void require_microbatches(const std::vector<Microbatch>& microbatches, int num_microbatches) {
  if (num_microbatches < 1) {
    throw ArgumentError(
        fmt::format("cannot run {} microbatches; use at least 1", num_microbatches));
  }
  if (microbatches.size() != static_cast<std::size_t>(num_microbatches)) {
    throw ArgumentError(fmt::format(
        "found {}, expected {}",
        counted(static_cast<long long>(microbatches.size()), "microbatch", "microbatches"),
        num_microbatches));
  }
  for (std::size_t index = 1; index < microbatches.size(); ++index) {
    require_same_arguments(microbatches[0], microbatches[index], index);
  }
}

}  // namespace penstock
