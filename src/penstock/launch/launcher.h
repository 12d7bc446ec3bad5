#pragma once

#include "penstock/launch/launch_options.h"

namespace penstock {

// Runs the ranks of this host to their end. Their output comes out line by line, with the rank in
// front; SIGINT, SIGTERM, SIGQUIT and SIGHUP go on to them and end the job, SIGUSR1 and SIGUSR2 go
// on to them and do not. When one fails, all end, and the job is started again as often as the
// options allow. Nothing that they have started is left at the end.
//
// Returns the exit code of the first rank that failed, 128 + the signal if it was killed, or 0. If
// ranks fail after a signal to the launcher, it is 128 + that signal, whatever they make of it.
// Throws ArgumentError for options that make no sense, Error if the program cannot be started. For
// programs with one thread and no other children: it blocks signals, and ends every child.
int launch(const LaunchOptions& options);

}  // namespace penstock
