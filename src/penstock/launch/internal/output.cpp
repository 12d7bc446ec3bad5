#include "penstock/launch/internal/output.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace penstock {
namespace {

bool are_same_file(int one, int other) {
  struct stat first = {};
  struct stat second = {};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

bool can_write(int descriptor) {
  pollfd polled = {descriptor, POLLOUT, 0};
  return poll(&polled, 1, 0) > 0;
}

}  // namespace

Output::Output()
    : streams_{open_stream(STDOUT_FILENO), open_stream(STDERR_FILENO)},
      is_one_(are_same_file(STDOUT_FILENO, STDERR_FILENO)) {}

Output::~Output() {
  for (const Stream& stream : streams_) {
    if (stream.is_own) close(stream.descriptor);
  }
}

// O_NONBLOCK would hold for everybody who shares a descriptor, such as the user's shell. So pipes
// and terminals are opened once more. What cannot be opened, such as a socket, still takes PIPE_BUF
// bytes at once when poll() says so.
Output::Stream Output::open_stream(int target) {
  struct stat info = {};
  if (fstat(target, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))) {
    const int own = open(fmt::format("/proc/self/fd/{}", target).c_str(),
                         O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0) return {.descriptor = own, .is_own = true};
  }
  return {.descriptor = target};
}

const Output::Stream& Output::stream(int target) const {
  return streams_[target == STDERR_FILENO && !is_one_ ? 1 : 0];
}

Output::Stream& Output::stream(int target) {
  return streams_[target == STDERR_FILENO && !is_one_ ? 1 : 0];
}

void Output::add(int target, std::string_view text) {
  if (!stream(target).is_broken) stream(target).pending += text;
}

void Output::say(const std::string& text) {
  add(STDERR_FILENO, "penstock: " + text + "\n");
  flush();
}

void Output::flush() {
  for (Stream& stream : streams_) flush(stream);
}

void Output::flush(Stream& stream) {
  std::string_view rest = stream.pending;
  while (!rest.empty() && can_write(stream.descriptor)) {
    const std::size_t piece = std::min<std::size_t>(rest.size(), PIPE_BUF);
    const ssize_t count = write(stream.descriptor, rest.data(), piece);
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      stream.is_broken = true;
      rest = {};
    }
  }
  stream.pending.erase(0, stream.pending.size() - rest.size());
}

int Output::descriptor(int target) const {
  const Stream& found = stream(target);
  return found.pending.empty() ? -1 : found.descriptor;
}

bool Output::is_empty() const {
  return streams_[0].pending.empty() && streams_[1].pending.empty();
}

}  // namespace penstock
