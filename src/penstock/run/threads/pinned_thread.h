#pragma once

#include <optional>
#include <vector>

#include <sched.h>

namespace penstock {

// The cores that the calling thread may run on.
std::vector<int> allowed_cores();

// Keeps the calling thread on a core. A system that does not allow it runs as well as before.
void pin_to_core(int core);

// The same for the life of this object; without a core, nothing.
class PinnedThread {
 public:
  explicit PinnedThread(std::optional<int> core);
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;
  PinnedThread(PinnedThread&&) = delete;
  PinnedThread& operator=(PinnedThread&&) = delete;
  ~PinnedThread();

 private:
  bool is_pinned_;
  cpu_set_t before_{};
};

}  // namespace penstock
