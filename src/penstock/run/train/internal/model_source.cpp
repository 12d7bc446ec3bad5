#include "penstock/run/train/internal/model_source.h"

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace penstock {

void require_size(std::string_view name, std::int64_t size) {
  if (size < 1) {
    throw ArgumentError(fmt::format("the {} of a model must be at least 1, not {}", name, size));
  }
}

void require_dropout(double probability) {
  if (!(probability >= 0 && probability < 1)) {
    throw ArgumentError(
        fmt::format("the dropout of a model must be from 0 up to below 1, not {}", probability));
  }
}

}  // namespace penstock
