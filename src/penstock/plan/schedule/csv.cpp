#include "penstock/plan/schedule/csv.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/plan/schedule/internal/action_parser.h"
#include "penstock/plan/schedule/internal/parse_failure.h"

namespace penstock {
namespace {

// How a rank with one idle slot is written: as an empty line it would be a rank with no slots.
constexpr std::string_view kQuotedIdle = "\"\"";

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source_name)
      : text_(checked_file_text(text, source_name)), source_name_(source_name) {}

  Schedule read() {
    if (text_.empty()) fail(text_, "no ranks; expected one line of actions per rank");
    Schedule schedule;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      std::string_view line = text_.substr(begin, end - begin);
      if (end < text_.size() && line.ends_with('\r')) line.remove_suffix(1);
      // Ranks are mostly of one length, and no line has more cells than bytes, and one.
      const std::size_t likely_steps = schedule.ranks.empty() ? 0 : schedule.ranks.back().size();
      std::vector<Action>& actions = schedule.ranks.emplace_back();
      actions.reserve(std::min(likely_steps, line.size() + 1));
      if (!line.empty()) read_cells(line, actions);
      begin = end + 1;
    }
    if (first_idle_ && is_lowered(schedule)) fail(*first_idle_, idle_in_lowered_problem());
    return schedule;
  }

 private:
  void read_cells(std::string_view line, std::vector<Action>& actions) {
    for (bool is_last = false; !is_last;) {
      const std::size_t length = std::min(line.find(','), line.size());
      is_last = length == line.size();
      read_cell(line.substr(0, length), actions.emplace_back());
      if (!is_last) line.remove_prefix(length + 1);
    }
  }

  void read_cell(std::string_view untrimmed, Action& action) {
    const std::string_view cell = trimmed(untrimmed);
    if (cell.empty() || cell == kQuotedIdle) {
      if (!first_idle_) first_idle_ = cell;
      return;
    }
    if (const std::optional<TextProblem> failure = parse_action_into(cell, action)) {
      const std::string_view place = cell.substr(failure->offset);
      if (place.starts_with('\r')) {
        fail(place, "carriage return within a line; lines end in LF or CR LF");
      }
      if (cell.starts_with('"')) {
        fail(cell, fmt::format("quoted cell {}; actions are written without quotes", quote(cell)));
      }
      fail(place, failure->problem);
    }
  }

  // `place` must be a part of the text.
  [[noreturn]] void fail(std::string_view place, const std::string& problem) const {
    throw_parse_error(text_, static_cast<std::size_t>(place.data() - text_.data()), source_name_,
                      problem);
  }

  std::string_view text_;
  const std::string& source_name_;
  std::optional<std::string_view> first_idle_;
};

}  // namespace

std::string write_csv(const Schedule& schedule, LineEnd line_end) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.ranks) {
    if (actions.size() == 1 && actions.front().kind == ActionKind::Idle) text += kQuotedIdle;
    for (std::size_t step = 0; step < actions.size(); ++step) {
      if (step > 0) text += ',';
      append_text(actions[step], text);
    }
    text += line_end == LineEnd::CrLf ? "\r\n" : "\n";
  }
  return text;
}

Schedule read_csv(std::string_view text, const std::string& source_name) {
  return CsvReader(text, source_name).read();
}

}  // namespace penstock
