#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "penstock/run/world/world_options.h"

namespace penstock {

// How a rank ended.
struct RankEnd {
  bool has_returned = false;                   // its function did
  bool has_thrown = false;                     // a std::exception
  int signal = 0;                              // that killed it
  std::string text;                            // what it returned, or what the exception says
  std::chrono::steady_clock::time_point time;  // of the return or the throw
};

// Where ranks meet.
enum class Meeting { File, Port };

struct ForkOptions {
  Meeting meeting = Meeting::File;
  std::function<void(WorldOptions&)> change = {};  // of each rank, before it starts
  // Called in this process when all ranks are started.
  std::function<void(const std::vector<pid_t>&)> meanwhile = {};
  int stopped_rank = -1;  // will not end by itself: is killed when all others have ended
  std::chrono::seconds patience = std::chrono::seconds(60);  // then ranks are killed: a hang
};

// Runs `rank` in a process per rank. They are forked from this one, which has loaded libtorch
// already: starting one takes milliseconds. That is safe as long as this process has computed
// nothing, for then libtorch has no threads; so tests that use this compute in ranks only.
std::vector<RankEnd> run_forked(int num_ranks,
                                const std::function<std::string(const WorldOptions&)>& rank,
                                const ForkOptions& options = {});

// The same for processes that are no ranks.
std::vector<std::string> run_apart(const std::vector<std::function<std::string()>>& works);
std::string run_apart(const std::function<std::string()>& work);

std::string contents_of(const std::string& path);

// A port that was free a moment ago.
int free_port();

}  // namespace penstock
