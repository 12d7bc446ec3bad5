#include "tests/run/processes/forked_ranks.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t process = -1;
  int pipe = -1;
  std::string said;
};

void write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

// The first letter says how it ended, then comes the time, then the text.
[[noreturn]] void be_child(int pipe, const std::function<std::string()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string text;
  char how = 'R';
  try {
    text = work();
  } catch (const std::exception& error) {
    how = 'E';
    text = error.what();
  }
  const auto time = Clock::now().time_since_epoch().count();
  write_all(pipe, how + std::to_string(time) + ' ' + text);
  _exit(0);
}

Child start(const std::function<std::string()>& work) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const pid_t process = fork();
  if (process == 0) {
    close(ends[0]);
    be_child(ends[1], work);
  }
  close(ends[1]);
  return {.process = process, .pipe = ends[0], .said = {}};
}

// Reads what children say until all have ended; kills them when the time is up.
void listen(std::vector<Child>& children, Clock::time_point end, int stopped = -1) {
  std::array<char, 1 << 16> buffer = {};
  for (;;) {
    std::vector<pollfd> polled;
    for (const Child& child : children) {
      if (child.pipe >= 0) polled.push_back({child.pipe, POLLIN, 0});
    }
    if (polled.empty()) return;
    const bool is_left_alone =
        stopped >= 0 && polled.size() == 1 &&
        polled.front().fd == children[static_cast<std::size_t>(stopped)].pipe;
    if (is_left_alone || Clock::now() > end) {
      for (const Child& child : children) kill(child.process, SIGKILL);
    }
    poll(polled.data(), polled.size(), 100);
    for (Child& child : children) {
      if (child.pipe < 0) continue;
      pollfd query{child.pipe, POLLIN, 0};
      if (poll(&query, 1, 0) == 0) continue;
      const ssize_t count = read(child.pipe, buffer.data(), buffer.size());
      if (count > 0) {
        child.said.append(buffer.data(), static_cast<std::size_t>(count));
        continue;
      }
      close(child.pipe);
      child.pipe = -1;
    }
  }
}

RankEnd end_of(const Child& child) {
  RankEnd end;
  int status = 0;
  waitpid(child.process, &status, 0);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (child.said.empty()) return end;
  const std::size_t space = child.said.find(' ');
  end.has_returned = child.said[0] == 'R';
  end.has_thrown = child.said[0] == 'E';
  end.time = Clock::time_point(Clock::duration(std::stoll(child.said.substr(1, space - 1))));
  end.text = child.said.substr(space + 1);
  return end;
}

}  // namespace

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int free_port() {
  // The kernel gives ports from 32768 on to whoever connects, so one of those is soon taken again.
  constexpr int kFirst = 10'000;
  constexpr int kCount = 20'000;
  constexpr int kPerProcess = 16;  // that processes which run at the same time have to themselves
  static int next = 0;
  for (;;) {
    const int port = kFirst + (getpid() * kPerProcess + next++) % kCount;
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool is_free = bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(socket);
    if (is_free) return port;
  }
}

std::vector<RankEnd> run_forked(int num_ranks,
                                const std::function<std::string(const WorldOptions&)>& rank,
                                const ForkOptions& options) {
  const testing::TemporaryFolder folder;
  WorldOptions world{.size = num_ranks, .timeout = std::chrono::seconds(30)};
  if (options.meeting == Meeting::File) {
    world.store_file = folder.path("store");
  } else {
    world.master_port = free_port();
  }
  std::vector<Child> children;
  std::vector<pid_t> processes;
  for (int number = 0; number < num_ranks; ++number) {
    children.push_back(start([&] {
      WorldOptions own = world;
      own.rank = number;
      own.local_rank = number;
      if (options.change) options.change(own);
      return rank(own);
    }));
    processes.push_back(children.back().process);
  }
  if (options.meanwhile) options.meanwhile(processes);
  listen(children, Clock::now() + options.patience, options.stopped_rank);
  std::vector<RankEnd> ends;
  for (const Child& child : children) ends.push_back(end_of(child));
  return ends;
}

std::vector<std::string> run_apart(const std::vector<std::function<std::string()>>& works) {
  std::vector<Child> children;
  for (const auto& work : works) children.push_back(start(work));
  listen(children, Clock::now() + std::chrono::minutes(3));
  std::vector<std::string> texts;
  for (const Child& child : children) {
    const RankEnd end = end_of(child);
    EXPECT_TRUE(end.has_returned) << end.text << " (signal " << end.signal << ")";
    texts.push_back(end.text);
  }
  return texts;
}

std::string run_apart(const std::function<std::string()>& work) {
  return run_apart(std::vector{work}).front();
}

}  // namespace penstock
