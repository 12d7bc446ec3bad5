#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "penstock/run/transport/open_transport.h"
#include "penstock/run/transport/transport.h"

// The ways that ranks can be connected, for tests that run on several of them.
namespace penstock {

constexpr Extent kExtent{.num_stages = 4, .num_microbatches = 3};

using Ranks = std::vector<std::function<void(Transport&)>>;

// Runs each function as a rank of its own, and returns when all have.
using RunRanks = void (*)(const Ranks& ranks, std::chrono::nanoseconds deadline);

void run_on_threads(const Ranks& ranks, std::chrono::nanoseconds deadline);

// In processes, see run_in_processes().
void run_over_shared_memory(const Ranks& ranks, std::chrono::nanoseconds deadline);
void run_over_gloo(const Ranks& ranks, std::chrono::nanoseconds deadline);
void run_over_own_backend(const Ranks& ranks, std::chrono::nanoseconds deadline);

// Receives, however often the deadline passes before the message comes.
Message receive_patiently(Transport& transport, int from_rank, MessageKey key);

inline MessageKey activation(int stage, int microbatch) {
  return {stage, microbatch, Direction::Forward};
}

inline MessageKey gradient(int stage, int microbatch) {
  return {stage, microbatch, Direction::Backward};
}

}  // namespace penstock
