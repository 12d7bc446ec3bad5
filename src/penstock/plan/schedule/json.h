#pragma once

#include <string>
#include <string_view>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// The schedule as one JSON object: {"format": "penstock-schedule", "version": 1, ..., "ranks":
// [["0F0", ...], ...]}. See docs/formats/schedule.md.
std::string write_json(const Schedule& schedule);

// The inverse of write_json(): takes the lists under "ranks", and rejects other formats and
// versions. Throws ParseError, with `source_name`, line and column; and on a text without ranks.
Schedule read_json(std::string_view text, const std::string& source_name);

}  // namespace penstock
