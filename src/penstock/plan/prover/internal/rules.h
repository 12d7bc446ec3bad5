#pragma once

#include <optional>
#include <vector>

#include "penstock/plan/prover/internal/action_index.h"
#include "penstock/plan/prover/internal/violations.h"

namespace penstock {

// One function per rule (two for check_parameters: Sharding and Reduction). Each reports all it
// finds and trusts none of the others.

// The extent of the schedule; empty if an action is not even one: then no other rule may look.
std::optional<Extent> check_form(const Schedule& schedule, Violations& violations);
void check_completeness(const ActionIndex& index, Violations& violations);
void check_order(const ActionIndex& index, Violations& violations);
void check_communication(const ActionIndex& index, Violations& violations);
void check_parameters(const Schedule& schedule, Extent extent, Violations& violations);

// Without communication, a value is on every rank as soon as it is computed.
void check_deadlock(const ActionIndex& index, bool with_communication, Violations& violations);

std::vector<int> peak_activations(const ActionIndex& index);

}  // namespace penstock
