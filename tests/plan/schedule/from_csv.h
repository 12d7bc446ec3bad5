#pragma once

#include <string_view>

#include "penstock/plan/schedule/csv.h"

namespace penstock {

inline Schedule from_csv(std::string_view text) {
  return read_csv(text, "test.csv");
}

}  // namespace penstock
