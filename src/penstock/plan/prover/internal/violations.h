#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/plan/prover/check.h"

namespace penstock {

// Collects what the rules find. Counts everything that concerns one of `rules` or the form, which
// all of them rely on; keeps and formats only the first `limit`.
class Violations {
 public:
  Violations(const Schedule& schedule, std::size_t limit, RuleSet rules)
      : schedule_(schedule), limit_(limit), rules_(rules) {}

  template <typename... Args>
  void add(Rule rule, Position position, fmt::format_string<Args...> problem, Args&&... args) {
    if (rule != Rule::Form && !rules_.contains(rule)) return;
    ++count_;
    if (kept_.size() >= limit_) return;
    const bool has_action = position.rank >= 0 && position.step >= 0;
    kept_.push_back({.rule = rule,
                     .position = position,
                     .action = has_action ? to_string(action_at(schedule_, position)) : "",
                     .problem = fmt::format(problem, std::forward<Args>(args)...)});
  }

  std::size_t count() const { return count_; }
  std::vector<Violation> take() { return std::move(kept_); }

 private:
  const Schedule& schedule_;
  std::size_t limit_;
  RuleSet rules_;
  std::size_t count_ = 0;
  std::vector<Violation> kept_;
};

}  // namespace penstock
