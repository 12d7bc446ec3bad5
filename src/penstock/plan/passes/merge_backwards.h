#pragma once

#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Replaces every I that is directly followed by its own W with one B. Idle slots are dropped;
// containers are left as they are.
Schedule merge_backwards(const Schedule& schedule);

// The reverse: replaces every B outside of containers with I and W. Idle slots are dropped.
Schedule split_backwards(const Schedule& schedule);

}  // namespace penstock
