#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/run/checkpoint/checkpoint_group.h"

namespace penstock {

// Does `work` in every process of the group, and returns in all of them what each has returned, by
// rank. If it throws in any, all throw the CheckpointError of the lowest rank.
std::vector<std::string> agree(const CheckpointGroup& group,
                               const std::function<std::string()>& work);

// Does `work` for 0, 1, ... with a thread each, and throws the first failure when all are done.
void run_together(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace penstock
