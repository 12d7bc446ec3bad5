#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "penstock/plan/generators/shape.h"
#include "penstock/plan/schedule/schedule.h"
#include "schedule_io.h"

namespace penstock {

// Where a command takes its programs from; filled from the command line.
struct SourceFlags {
  ScheduleShape shape = {.num_ranks = 0, .num_microbatches = 0};  // 0: not given
  LowerFlags lowering;
};
void add_source_options(CLI::App& command, SourceFlags& flags);

// A lowered, proved program with what people call it.
struct Program {
  std::string name;
  Schedule schedule;
  int num_stages = 0;
  int num_microbatches = 0;
  int stages_per_rank = 0;  // the most that any rank has
};

// `source` is a file, "-" for standard input, or the name of a built-in schedule. A compute order
// is lowered; what is lowered already is proved.
Program load_program(const std::string& source, const SourceFlags& flags);

// Whether `source` is a file, or "-", rather than the name of a built-in schedule.
bool names_file(const std::string& source);

// "8 ranks, 16 stages, 32 microbatches"
std::string describe(const Program& program);

}  // namespace penstock
