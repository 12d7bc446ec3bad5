#pragma once

namespace penstock {

// Takes note of the first SIGINT, SIGTERM or SIGHUP instead of ending the process; a second one
// ends it (but see kSecondSignalAfter). For a process that others take their orders from; those
// others ignore them, for the terminal sends them to all. SIGHUP stays ignored if it was, which is
// what nohup is for.
enum class Interrupted { TakesNote, Ignores };
void catch_interruptions(Interrupted reaction);

// The signal that has come, or 0.
int interruption();

}  // namespace penstock
