#pragma once

#include <cstdlib>

namespace penstock {

// A property that does not hold is a finding: libFuzzer keeps the input of a run that aborts.
inline void require(bool property) {
  if (!property) std::abort();
}

}  // namespace penstock
