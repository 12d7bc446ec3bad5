#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// What a valid schedule keeps to. Docs: docs/concepts/proof.md.
enum class Rule {
  Form,           // ranks have work; containers hold computing actions; indices make sense
  Placement,      // a stage lives on one rank
  Completeness,   // every stage forwards and backwards every microbatch exactly once
  Order,          // nothing runs on a rank before what it needs from the same rank
  Communication,  // every value crosses ranks by one send and one receive, in order per channel
  Deadlock,       // all ranks finish, under rendezvous and under buffering
  Sharding,       // parameters are gathered before use and released in the end
  Reduction,      // gradients are reduced once, after the stage's last backward
};

std::string_view rule_name(Rule rule);

// Some of the rules.
class RuleSet {
 public:
  constexpr RuleSet(std::initializer_list<Rule> rules) {
    for (const Rule rule : rules) bits_ |= bit(rule);
  }
  static constexpr RuleSet all() {
    return {Rule::Form,          Rule::Placement, Rule::Completeness, Rule::Order,
            Rule::Communication, Rule::Deadlock,  Rule::Sharding,     Rule::Reduction};
  }
  constexpr bool contains(Rule rule) const { return (bits_ & bit(rule)) != 0; }
  constexpr bool is_empty() const { return bits_ == 0; }
  constexpr RuleSet without(RuleSet rules) const {
    RuleSet rest = *this;
    rest.bits_ &= ~rules.bits_;
    return rest;
  }

 private:
  static constexpr unsigned bit(Rule rule) { return 1U << static_cast<unsigned>(rule); }
  unsigned bits_ = 0;
};

struct Violation {
  Rule rule = Rule::Form;
  Position position;   // step is -1 if the rank as a whole is concerned, rank too if all are
  std::string action;  // text of the action at `position`, if there is one
  std::string problem;
};

// "rank 2, step 17 (2B5): backward before its forward (2F5 is at step 19)"
std::string to_string(const Violation& violation);

// What a schedule is, and everything that is wrong with it.
struct CheckReport {
  bool is_lowered = false;
  bool is_forward_only = false;
  int num_ranks = 0;
  int num_stages = 0;
  int num_microbatches = 0;
  Placement placement;

  // Per rank, the largest number of (stage, microbatch) pairs whose forward has run and whose
  // B or W has not. A forward-only rank keeps one at a time.
  std::vector<int> peak_activations;

  std::vector<Violation> violations;  // at most CheckOptions::max_violations of them
  std::size_t num_violations = 0;

  bool is_valid() const { return num_violations == 0; }
};

struct CheckOptions {
  // Stages and microbatches that must all be there. Unset: as many as the actions mention.
  std::optional<Extent> extent = std::nullopt;
  // For a schedule that is not finished. Without Rule::Communication, values are on every rank as
  // soon as they are computed.
  RuleSet rules = RuleSet::all();
  std::size_t max_violations = 1000;
};

// Decides whether `schedule` is right, whatever its origin. Linear in the number of actions.
CheckReport check(const Schedule& schedule, const CheckOptions& options = {});

// An invalid schedule. what() names the first violations; report() has them all.
class ScheduleError : public Error {
 public:
  explicit ScheduleError(CheckReport report);
  const CheckReport& report() const { return report_; }

 private:
  CheckReport report_;
};

void require_valid(const Schedule& schedule, const CheckOptions& options = {});

}  // namespace penstock
