#include "penstock/plan/schedule/table.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace penstock {
namespace {

void append_padded(std::string_view cell, std::size_t width, std::string& text) {
  text += cell;
  text.append(width - cell.size(), ' ');
}

std::size_t longest_cell(const std::vector<Action>& actions) {
  std::size_t longest = 0;
  std::string cell;
  for (const Action& action : actions) {
    cell.clear();
    append_text(action, cell);
    longest = std::max(longest, cell.size());
  }
  return longest;
}

}  // namespace

std::string write_table(const Schedule& schedule, std::optional<int> error_step) {
  std::size_t num_steps = 0;
  for (const std::vector<Action>& actions : schedule.ranks) {
    num_steps = std::max(num_steps, actions.size());
  }
  const std::size_t num_digits = fmt::formatted_size("{}", num_steps > 0 ? num_steps - 1 : 0);
  const std::size_t step_label_width = std::string_view("Step ").size() + num_digits;

  std::string text(step_label_width + 1, ' ');
  std::vector<std::size_t> widths;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::string label = fmt::format("Rank {}", rank);
    widths.push_back(
        std::max({longest_cell(schedule.ranks[rank]), step_label_width, label.size()}));
    text += ' ';
    append_padded(label, widths.back(), text);
  }
  text += '\n';

  std::string cell;
  for (std::size_t step = 0; step < num_steps; ++step) {
    text += fmt::format("Step {:0{}}:", step, num_digits);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      const std::vector<Action>& actions = schedule.ranks[rank];
      cell.clear();
      if (step < actions.size()) append_text(actions[step], cell);
      text += ' ';
      append_padded(cell, widths[rank], text);
    }
    const bool is_error =
        error_step && *error_step >= 0 && static_cast<std::size_t>(*error_step) == step;
    if (is_error) text += " <-- ERROR HERE";
    text += '\n';
  }
  return text;
}

}  // namespace penstock
