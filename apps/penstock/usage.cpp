#include "usage.h"

#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/text.h"
#include "suggestion.h"

namespace penstock {
namespace {

// The innermost subcommand that the command line names; `program` itself if it names none.
const CLI::App& chosen_command(const CLI::App& program) {
  const std::vector<CLI::App*> chosen = program.get_subcommands();
  return chosen.empty() ? program : chosen_command(*chosen.front());
}

// The names that lead to it, each with a space behind it.
std::string path_of(const CLI::App& program) {
  const std::vector<CLI::App*> chosen = program.get_subcommands();
  return chosen.empty() ? "" : chosen.front()->get_name() + " " + path_of(*chosen.front());
}

std::vector<std::string_view> command_names(const CLI::App& program) {
  std::vector<std::string_view> names;
  for (const CLI::App* command : program.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string leftover_problem(const CLI::App& program, const std::string& text) {
  const CLI::App& command = chosen_command(program);
  if (text.size() > 1 && text.starts_with('-')) {
    const std::vector<std::string> names = option_names(command);
    const std::vector<std::string_view> views(names.begin(), names.end());
    return fmt::format("unknown option {}{}", quote(text), suggestion(text, views));
  }
  const std::vector<std::string_view> names = command_names(command);
  if (names.empty()) return fmt::format("unexpected argument {}", quote(text));
  const std::string nearest = suggestion(text, names);
  return fmt::format(
      "unknown command {}{}", quote(text),
      nearest.empty() ? fmt::format("; expected one of {}", fmt::join(names, ", ")) : nearest);
}

// CLI11 throws an ArgumentMismatch for an option without its value, or with more than one.
std::string mismatch_problem(std::string_view message) {
  const std::size_t name_end = message.find(": ");
  if (name_end != std::string_view::npos && message.ends_with("missing")) {
    return fmt::format("{}: expected a value, found nothing", message.substr(0, name_end));
  }
  if (name_end != std::string_view::npos && message.find("At Most") != std::string_view::npos) {
    return fmt::format("{}: given more than once", message.substr(0, name_end));
  }
  return std::string(message);
}

// Options check their values before CLI11 converts them; what it cannot convert is the value of a
// flag: "Could not convert: --lower = x".
std::string flag_problem(std::string_view message) {
  const std::size_t begin = message.find("--");
  const std::size_t end = message.find(' ', begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return std::string(message);
  return fmt::format("{}: takes no value", message.substr(begin, end - begin));
}

std::string problem_of(const CLI::App& program, const CLI::ParseError& error) {
  std::vector<std::string> leftover = program.remaining(/*recurse=*/true);
  std::erase(leftover, "--");  // the mark in front of positional arguments, which is left as well
  if (!leftover.empty()) return leftover_problem(program, leftover.front());
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return mismatch_problem(error.what());
  }
  if (const auto* conversion = dynamic_cast<const CLI::ConversionError*>(&error)) {
    return flag_problem(conversion->what());
  }
  const std::vector<std::string_view> names = command_names(chosen_command(program));
  if (!names.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return fmt::format("expected a command, one of {}", fmt::join(names, ", "));
  }
  return error.what();
}

constexpr std::size_t kColumns = 100;

// Breaks `text` between words, so that no line of several words is longer than `width`.
std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string result;
  std::size_t length = 0;
  for (std::string word; words >> word;) {
    const bool fits = length + 1 + word.size() <= width;
    if (!result.empty()) result += fits ? ' ' : '\n';
    length = fits && !result.empty() ? length + 1 + word.size() : word.size();
    result += word;
  }
  return result;
}

}  // namespace

std::string usage_problem(const CLI::App& program, const CLI::ParseError& error) {
  return fmt::format("{} (see 'penstock {}--help')", problem_of(program, error), path_of(program));
}

std::string ExamplesFirst::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
  return make_description(app) + "\n" + make_footer(app) + "\n" + make_usage(app, std::move(name)) +
         make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode);
}

std::string ExamplesFirst::make_option_desc(const CLI::Option* option) const {
  return wrapped(CLI::Formatter::make_option_desc(option), kColumns - get_column_width());
}

std::string ExamplesFirst::make_footer(const CLI::App* app) const {
  std::istringstream lines(CLI::Formatter::make_footer(app));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    // Examples are indented, and stay as they are.
    const bool is_kept = line.starts_with(' ') || line.size() <= kColumns;
    text += (is_kept ? line : wrapped(line, kColumns)) + "\n";
  }
  return text;
}

}  // namespace penstock
