#include "penstock/base/assert.h"

#include <fmt/format.h>

namespace penstock {

void assertion_failed(const char* condition, const char* meaning, const char* file, int line) {
  throw InternalError(fmt::format("internal error: {} ({} does not hold at {}:{})", meaning,
                                  condition, file, line));
}

}  // namespace penstock
