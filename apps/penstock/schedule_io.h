#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "penstock/plan/passes/lower.h"
#include "penstock/plan/report/chrome_trace.h"
#include "penstock/plan/schedule/csv.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Reads a whole file, or standard input for "-". Throws Error if it cannot be read.
std::string read_input(const std::string& path);

// Whether `path` is "-" or one of the names that the system has for it.
bool is_standard_input(const std::string& path);

// What read_input() has taken from standard input, if it has.
const std::optional<std::string>& consumed_input();

// Reads a schedule in either format: JSON if the text starts with '{', else CSV.
Schedule read_schedule(const std::string& path);

// How a command writes its schedule; filled from the command line.
struct OutputOptions {
  std::string format = "csv";
  bool crlf = false;
  std::string path = "-";
};
void add_output_options(CLI::App& command, OutputOptions& options);
void write_schedule(const Schedule& schedule, const OutputOptions& options);

// The options of lower(), for every command that lowers.
struct LowerFlags {
  LowerOptions options;
  bool no_sharding = false;
  bool merge_backwards = false;
  bool split_backwards = false;
  bool split_overlaps = false;

  LowerOptions resolve() const;
};
void add_lower_options(CLI::App& command, LowerFlags& flags);

// Writes `text` to standard output, or to a file that appears whole or not at all.
void write_output(std::string_view text, const std::string& path);

// The same for a text that comes in pieces: `write` hands them to the sink it is given.
using TextWriter = std::function<void(const TextSink& sink)>;
void write_output(const TextWriter& write, const std::string& path);

}  // namespace penstock
