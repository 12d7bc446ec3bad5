#include "penstock/run/transport/shared_memory/internal/futex_doorbell.h"

#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {

void FutexDoorbell::park(std::chrono::nanoseconds longest) noexcept {
  if (longest <= std::chrono::nanoseconds::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (longest - seconds).count();
  syscall(SYS_futex, &is_parked_, FUTEX_WAIT, 1U, &time, nullptr, 0);
}

void FutexDoorbell::wake() noexcept {
  syscall(SYS_futex, &is_parked_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace penstock
