#include "tests/cli/run_program.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace penstock::testing {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// One end of a pipe, closed once.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { close(); }

  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

struct Pipe {
  Pipe() : Pipe(open()) {}

  Descriptor read_end;
  Descriptor write_end;

 private:
  explicit Pipe(std::array<int, 2> ends) : read_end(ends[0]), write_end(ends[1]) {}
  static std::array<int, 2> open() {
    std::array<int, 2> ends = {};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
    return ends;
  }
};

std::string read_to_end(const Descriptor& descriptor) {
  std::string text;
  std::array<char, 1 << 16> buffer = {};
  while (true) {
    const ssize_t count = read(descriptor.number(), buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

// Stops early, without an error, if the reader goes away.
void write_to_end(Descriptor& descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor.number(), text.data(), text.size());
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  descriptor.close();
}

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  FileActions(FileActions&&) = delete;
  FileActions& operator=(FileActions&&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }

  void redirect(int number, const Descriptor& to) {
    posix_spawn_file_actions_adddup2(&actions_, to.number(), number);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

ProgramResult run(const std::string& program, std::vector<std::string> arguments,
                  std::string_view input) {
  std::signal(SIGPIPE, SIG_IGN);  // a program may end before it has read its input
  Pipe in;
  Pipe out;
  Pipe err;
  FileActions actions;
  actions.redirect(STDIN_FILENO, in.read_end);
  actions.redirect(STDOUT_FILENO, out.write_end);
  actions.redirect(STDERR_FILENO, err.write_end);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  pid_t child = -1;
  errno = posix_spawn(&child, program.c_str(), actions.get(), nullptr, argv.data(), environ);
  if (errno != 0) fail(program.c_str());
  in.read_end.close();
  out.write_end.close();
  err.write_end.close();

  ProgramResult result;
  {
    const std::jthread feeder([&] { write_to_end(in.write_end, input); });
    const std::jthread listener([&] { result.errors = read_to_end(err.read_end); });
    result.output = read_to_end(out.read_end);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

ProgramResult run_penstock(const std::vector<std::string>& arguments, std::string_view input) {
  return run(PENSTOCK_PROGRAM, arguments, input);
}

ProgramResult run_shell(const std::string& command_line) {
  const std::string folder = std::filesystem::path(PENSTOCK_PROGRAM).parent_path();
  return run("/bin/sh", {"-c", "PATH=" + folder + ":$PATH\n" + command_line}, {});
}

}  // namespace penstock::testing
