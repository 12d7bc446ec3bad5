#include "tests/support/listing.h"

#include <cstddef>
#include <sstream>
#include <stdexcept>

#include "penstock/plan/schedule/action.h"

namespace penstock::testing {

Schedule parse_listing(std::string_view text) {
  Schedule schedule;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word)) continue;
    if (word != std::to_string(schedule.num_ranks()) + ":") {
      throw std::invalid_argument("expected rank " + std::to_string(schedule.num_ranks()) +
                                  ", found \"" + word + "\"");
    }
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    while (words >> word) actions.push_back(word == "." ? Action{} : parse_action(word));
  }
  return schedule;
}

std::string write_listing(const Schedule& schedule) {
  std::string text;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    text += std::to_string(rank) + ": " + write_row(schedule, rank) + "\n";
  }
  return text;
}

std::string write_row(const Schedule& schedule, int rank) {
  std::string text;
  for (const Action& action : schedule.actions_of(rank)) {
    if (!text.empty()) text += ' ';
    text += action.kind == ActionKind::Idle ? "." : to_string(action);
  }
  return text;
}

}  // namespace penstock::testing
