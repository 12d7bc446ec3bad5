#pragma once

namespace penstock {

// Takes note of the first SIGINT or SIGTERM instead of ending the process; a second one ends it.
// For a process that others take their orders from; those others ignore SIGINT, which the terminal
// sends to all of them.
enum class Interrupted { TakesNote, Ignores };
void catch_interruptions(Interrupted reaction);

// The signal that has come, or 0.
int interruption();

}  // namespace penstock
