#pragma once

#include <string>
#include <string_view>

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

enum class LineEnd { Lf, CrLf };

// One line per rank, cells separated by commas, an idle slot as an empty cell. With CrLf the bytes
// are those of the dump of torch.distributed.pipelining.
std::string write_csv(const Schedule& schedule, LineEnd line_end = LineEnd::Lf);

// Reads compute orders and lowered schedules alike, with either line end. Throws ParseError, with
// `source_name`, line and column, on a cell that is no action, on an idle slot among lowered
// actions and on a text without any line.
Schedule read_csv(std::string_view text, const std::string& source_name);

}  // namespace penstock
