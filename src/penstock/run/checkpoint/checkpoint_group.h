#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "penstock/run/world/group.h"

namespace penstock {

class World;

// The processes that save one checkpoint together. All of them see the folder. Without `exchange`
// there is one.
struct CheckpointGroup {
  int rank = 0;  // of this process; rank 0 makes the folder and gives it its name
  // Tells `value` to the others, and returns what each has told, by rank. Called equally often by
  // all of them.
  std::function<std::vector<std::string>(const std::string& value)> exchange = {};
};

// Processes that tell each other through `world`, which must outlive the result. They wait for the
// slowest writer for as long as `patience`.
CheckpointGroup checkpoint_group(World& world, const Group& group,
                                 std::chrono::milliseconds patience = std::chrono::minutes(10));

}  // namespace penstock
