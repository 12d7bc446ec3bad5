#pragma once

#include <vector>

#include <sys/types.h>

namespace penstock {

// Strays are processes that ranks have started, whose parent has ended: in whatever process group
// they are, they become children of the launcher. `own` are the children that are no strays.

// From now on, what children of this process leave behind comes to it.
void adopt_strays();

// Gives back the process ids of strays that have ended.
void forget_ended_strays(const std::vector<pid_t>& own);

// Kills the strays, and what they leave behind, until there are none.
void end_strays(const std::vector<pid_t>& own);

}  // namespace penstock
