#include "penstock/launch/internal/strays.h"

#include <algorithm>
#include <csignal>
#include <fstream>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace penstock {
namespace {

std::vector<pid_t> find_strays(const std::vector<pid_t>& own) {
  std::ifstream file(fmt::format("/proc/self/task/{}/children", getpid()));
  std::vector<pid_t> strays;
  for (pid_t child = 0; file >> child;) {
    if (std::find(own.begin(), own.end(), child) == own.end()) strays.push_back(child);
  }
  return strays;
}

}  // namespace

void adopt_strays() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void forget_ended_strays(const std::vector<pid_t>& own) {
  for (const pid_t stray : find_strays(own)) waitpid(stray, nullptr, WNOHANG);
}

void end_strays(const std::vector<pid_t>& own) {
  for (;;) {
    const std::vector<pid_t> strays = find_strays(own);
    if (strays.empty()) return;
    for (const pid_t stray : strays) kill(stray, SIGKILL);
    for (const pid_t stray : strays) waitpid(stray, nullptr, 0);
  }
}

}  // namespace penstock
