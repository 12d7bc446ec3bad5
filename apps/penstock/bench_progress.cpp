#include "bench_progress.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace penstock {

void show_progress(double done) {
  if (isatty(fileno(stderr)) == 0) return;
  fmt::print(stderr, "\rmeasuring: {:3.0f} %{}", 100 * done, done < 1 ? "" : "\r\033[K");
  std::fflush(stderr);
}

}  // namespace penstock
