#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// What a process is about to run, in short.
struct Agreement {
  std::string version;  // of Penstock
  std::string model;    // as the user calls it
  Extent extent;
  std::vector<std::uint64_t> lists;    // a fingerprint of each rank's actions
  std::vector<std::uint64_t> layouts;  // of the stages' tensors; 0 where the process knows nothing
  std::set<std::string> keywords;      // that its stages take; those of other processes may differ
};

Agreement make_agreement(const Schedule& program, const FabricOptions& options,
                         const std::string& model);

// Of the whole program.
std::uint64_t fingerprint_of(const Agreement& agreement);

std::string to_text(const Agreement& agreement);

// The inverse. Of another version, nothing but its number is read.
Agreement parse_agreement(const std::string& text);

// How `found` differs from `expected`: "has 4 microbatches instead of 8"; empty if it does not.
std::string difference(const Agreement& expected, const Agreement& found);

}  // namespace penstock
