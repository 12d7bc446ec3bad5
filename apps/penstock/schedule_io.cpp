#include "schedule_io.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/schedule/json.h"
#include "penstock/plan/schedule/table.h"

namespace penstock {
namespace {

constexpr std::string_view kStream = "-";
constexpr std::size_t kLongestPath = 200;  // in a message

std::string reason() {
  return std::strerror(errno);
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

std::string source_name(const std::string& path) {
  return path == kStream ? "standard input" : path;
}

[[noreturn]] void fail_to_read(const std::string& path, const std::string& why) {
  const std::string name = path == kStream ? source_name(path) : quote(path, kLongestPath);
  throw Error(fmt::format("cannot read {}: {}", name, why));
}

[[noreturn]] void fail_to_write(const std::string& path, const std::string& why) {
  const std::string name = path == kStream ? "standard output" : quote(path, kLongestPath);
  throw Error(fmt::format("cannot write {}: {}", name, why));
}

// What was read of it.
std::optional<std::string>& standard_input() {
  static std::optional<std::string> text;
  return text;
}

// Reads to the end, or past the size that the readers accept.
std::string read_all(std::FILE* file, const std::string& path) {
  constexpr std::size_t kEnough = std::size_t{1} << 31;
  std::string text;
  std::string buffer(std::size_t{1} << 16, '\0');
  while (text.size() < kEnough) {
    const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file);
    text.append(buffer, 0, count);
    if (count < buffer.size()) break;
  }
  if (std::ferror(file) != 0) fail_to_read(path, reason());
  return text;
}

void write_all(std::FILE* file, const TextWriter& write, const std::string& path) {
  write([&](std::string_view piece) {
    if (std::fwrite(piece.data(), 1, piece.size(), file) != piece.size()) {
      fail_to_write(path, reason());
    }
  });
  if (std::fflush(file) != 0) fail_to_write(path, reason());
}

// A device or pipe takes bytes as they come; there is nothing to keep whole.
void write_stream(const TextWriter& write, const std::string& path) {
  const File file(std::fopen(path.c_str(), "wb"));
  if (!file) fail_to_write(path, reason());
  write_all(file.get(), write, path);
}

// Writes beside the target and renames, so that a failure leaves what was there.
void replace_file(const TextWriter& write, const std::string& path) {
  std::error_code failure;
  // A symbolic link stays: the file it leads to is replaced.
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, failure);
  if (failure) fail_to_write(path, failure.message());
  const std::string draft = fmt::format("{}.{}.part", target.native(), getpid());
  const File file(std::fopen(draft.c_str(), "wbx"));
  if (!file) fail_to_write(path, reason());
  try {
    write_all(file.get(), write, path);
    if (fsync(fileno(file.get())) != 0) fail_to_write(path, reason());
    if (std::rename(draft.c_str(), target.c_str()) != 0) fail_to_write(path, reason());
  } catch (...) {
    std::remove(draft.c_str());
    throw;
  }
}

void write_file(const TextWriter& write, const std::string& path) {
  std::error_code ignored;  // what does not exist yet is about to be created
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) fail_to_write(path, "it is a directory");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    write_stream(write, path);
  } else {
    replace_file(write, path);
  }
}

}  // namespace

bool is_standard_input(const std::string& path) {
  return path == kStream || path == "/dev/stdin" || path == "/dev/fd/0" ||
         path == "/proc/self/fd/0";
}

const std::optional<std::string>& consumed_input() {
  return standard_input();
}

std::string read_input(const std::string& path) {
  if (is_standard_input(path)) {
    if (!standard_input()) standard_input() = read_all(stdin, path);
    return *standard_input();
  }
  std::error_code ignored;  // opening the file tells what is wrong with it
  if (std::filesystem::is_directory(path, ignored)) {
    fail_to_read(path, "it is a directory");
  }
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail_to_read(path, reason());
  return read_all(file.get(), path);
}

Schedule read_schedule(const std::string& path) {
  const std::string text = read_input(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  return is_json ? read_json(text, source_name(path)) : read_csv(text, source_name(path));
}

void add_output_options(CLI::App& command, OutputOptions& options) {
  expect_choice(
      command.add_option("--format", options.format, "csv for programs, table for people, or json"),
      {"csv", "table", "json"})
      ->type_name("FORMAT")
      ->capture_default_str();
  command.add_flag("--crlf", options.crlf,
                   "end CSV lines with CR LF, as torch.distributed.pipelining writes them");
  command.add_option("-o,--output", options.path, "write to this file instead of standard output")
      ->type_name("FILE");
}

void write_schedule(const Schedule& schedule, const OutputOptions& options) {
  if (options.format == "table") {
    write_output(write_table(schedule), options.path);
  } else if (options.format == "json") {
    write_output(write_json(schedule), options.path);
  } else {
    write_output(write_csv(schedule, options.crlf ? LineEnd::CrLf : LineEnd::Lf), options.path);
  }
}

LowerOptions LowerFlags::resolve() const {
  LowerOptions result = options;
  result.sharding = !no_sharding;
  if (merge_backwards) result.backwards = Backwards::Merged;
  if (split_backwards) result.backwards = Backwards::Split;
  result.split_overlaps = split_overlaps;
  return result;
}

void add_lower_options(CLI::App& command, LowerFlags& flags) {
  expect_count(command.add_option("--max-active-stages", flags.options.max_active_stages,
                                  "stages of a rank whose parameters are gathered at a time"))
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--no-sharding", flags.no_sharding, "leave out UNSHARD and RESHARD");
  auto* merge = command.add_flag("--merge-backwards", flags.merge_backwards,
                                 "first turn every I that its W follows into one B");
  command
      .add_flag("--split-backwards", flags.split_backwards, "first turn every B into an I and a W")
      ->excludes(merge);
  command.add_flag("--split-overlaps", flags.split_overlaps,
                   "first turn every OVERLAP_F_B into its parts, each with its own dependencies");
}

void write_output(const TextWriter& write, const std::string& path) {
  if (path == kStream) {
    write_all(stdout, write, path);
  } else {
    write_file(write, path);
  }
}

void write_output(std::string_view text, const std::string& path) {
  write_output([text](const TextSink& sink) { sink(text); }, path);
}

}  // namespace penstock
