#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/world/world.h"

namespace penstock {

// The processes that save one checkpoint together. All of them see the folder. Without `exchange`
// there is one.
struct CheckpointGroup {
  int rank = 0;  // of this process; rank 0 makes the folder and gives it its name
  // Tells `value` to the others, and returns what each has told, by rank. Called equally often by
  // all of them.
  std::function<std::vector<std::string>(const std::string& value)> exchange = {};
};

// How long the processes wait for the slowest of them to write.
inline constexpr std::chrono::minutes kSavePatience{10};

// Processes that tell each other through `world`, which must outlive the result.
CheckpointGroup checkpoint_group(World& world, const Group& group,
                                 const ExchangeOptions& options = {.timeout = kSavePatience});
// The same for the ranks of a pipeline, who need not wait for one that has died.
CheckpointGroup checkpoint_group(World& world, const Group& group,
                                 std::shared_ptr<const ProcessRanks> ranks);

}  // namespace penstock
