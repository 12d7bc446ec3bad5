#pragma once

#include <chrono>
#include <string>

#include "penstock/run/transport/message.h"

namespace penstock {

// "the activations of microbatch 3 for stage 1".
std::string describe(MessageKey key);

// Throws the TransportError of a message that did not come in time.
[[noreturn]] void throw_late(std::chrono::nanoseconds deadline, MessageKey key, int from_rank);

}  // namespace penstock
