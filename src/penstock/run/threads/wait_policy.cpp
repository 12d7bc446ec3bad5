#include "penstock/run/threads/wait_policy.h"

#include "penstock/run/threads/pinned_thread.h"

namespace penstock {

WaitPolicy wait_policy_for(int num_threads, std::chrono::nanoseconds deadline) {
  WaitPolicy policy;
  policy.deadline = deadline;
  if (num_threads > static_cast<int>(allowed_cores().size())) {
    policy.spin = std::chrono::nanoseconds::zero();
  }
  return policy;
}

}  // namespace penstock
