#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "penstock/plan/simulator/cost_model.h"

namespace penstock {

// What a schedule is simulated with; filled from the command line. Times are milliseconds.
struct CostFlags {
  std::string costs = "1,1,1";  // F, I, W
  double hop = 0;
  std::string bytes;  // kept from F to I or B, and from I to W; empty: not known
  double overlap_factor = 1;
  std::string sends = "buffered";
  bool per_rank = false;
  std::string profile_path;

  // Whether a peak in bytes means something. If not, a microbatch counts one byte on every stage.
  bool have_sizes() const { return !bytes.empty() || !profile_path.empty(); }

  // The costs for stages of which each rank has `stages_per_rank`.
  CostModel resolve(int stages_per_rank) const;
};
void add_cost_options(CLI::App& command, CostFlags& flags);

}  // namespace penstock
