#pragma once

#include <chrono>

namespace penstock {

// Bounds how long whoever serves `port` in this process waits in the middle of a message, for every
// connection that is there and every one that comes. A read or write that takes longer fails.
void limit_waits_at_port(int port, std::chrono::milliseconds limit);

}  // namespace penstock
