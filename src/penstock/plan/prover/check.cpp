#include "penstock/plan/prover/check.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "penstock/plan/prover/internal/action_index.h"
#include "penstock/plan/prover/internal/rules.h"
#include "penstock/plan/prover/internal/violations.h"

namespace penstock {

std::string_view rule_name(Rule rule) {
  switch (rule) {
    case Rule::Form:
      return "form";
    case Rule::Placement:
      return "placement";
    case Rule::Completeness:
      return "completeness";
    case Rule::Order:
      return "order";
    case Rule::Communication:
      return "communication";
    case Rule::Deadlock:
      return "deadlock";
    case Rule::Sharding:
      return "sharding";
    case Rule::Reduction:
      return "reduction";
  }
  return "";
}

std::string to_string(const Violation& violation) {
  const auto [rank, step] = violation.position;
  if (rank < 0) return violation.problem;
  if (step < 0) return fmt::format("rank {}: {}", rank, violation.problem);
  return fmt::format("rank {}, step {} ({}): {}", rank, step, violation.action, violation.problem);
}

namespace {

void check_compute_and_communication(const ActionIndex& index, RuleSet rules, CheckReport& report,
                                     Violations& violations) {
  const bool with_communication = report.is_lowered && rules.contains(Rule::Communication);
  report.is_forward_only = index.is_forward_only();
  report.placement = index.placement();
  report.peak_activations = peak_activations(index);
  check_completeness(index, violations);
  check_order(index, violations);
  if (with_communication) check_communication(index, violations);
  if (rules.contains(Rule::Deadlock)) check_deadlock(index, with_communication, violations);
}

}  // namespace

CheckReport check(const Schedule& schedule, const CheckOptions& options) {
  CheckReport report;
  report.is_lowered = is_lowered(schedule);
  report.num_ranks = schedule.num_ranks();

  const RuleSet rules = options.rules;
  Violations violations(schedule, options.max_violations, rules);
  // The rules index tables by stage and microbatch; they only see actions that have them.
  std::optional<Extent> extent = check_form(schedule, violations);
  if (extent) extent = find_extent(schedule, *extent, options, violations);
  if (extent) {
    report.num_stages = extent->num_stages;
    report.num_microbatches = extent->num_microbatches;
    // The walk over parameter actions needs no index, which is most of the work.
    if (!rules.without({Rule::Form, Rule::Sharding, Rule::Reduction}).is_empty()) {
      check_compute_and_communication(ActionIndex(schedule, *extent, violations), rules, report,
                                      violations);
    }
    if (report.is_lowered) check_parameters(schedule, *extent, violations);
  }
  report.num_violations = violations.count();
  report.violations = violations.take();
  return report;
}

namespace {

std::string summary_of(const CheckReport& report) {
  constexpr std::size_t kMostNamed = 5;
  std::string text = "invalid schedule";
  for (std::size_t i = 0; i < std::min(kMostNamed, report.violations.size()); ++i) {
    text += (i == 0 ? ": " : "; ") + to_string(report.violations[i]);
  }
  if (report.num_violations > kMostNamed) {
    text += fmt::format("; and {} more", report.num_violations - kMostNamed);
  }
  return text;
}

}  // namespace

ScheduleError::ScheduleError(CheckReport report)
    : Error(summary_of(report)), report_(std::move(report)) {}

void require_valid(const Schedule& schedule, const CheckOptions& options) {
  CheckReport report = check(schedule, options);
  if (!report.is_valid()) throw ScheduleError(std::move(report));
}

}  // namespace penstock
