#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "penstock/plan/schedule/action.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

inline rc::Gen<int> random_index() {
  return rc::gen::oneOf(rc::gen::inRange(0, 12), rc::gen::inRange(0, Action::kLargestIndex),
                        rc::gen::just(Action::kLargestIndex));
}

inline rc::Gen<Action> random_simple_action(std::vector<ActionKind> kinds) {
  return rc::gen::map(
      rc::gen::tuple(random_index(), rc::gen::elementOf(std::move(kinds)), random_index()),
      [](const std::tuple<int, ActionKind, int>& fields) {
        const auto& [stage, kind, microbatch] = fields;
        return Action{.stage = stage,
                      .kind = kind,
                      .microbatch = has_microbatch(kind) ? microbatch : Action::kNone};
      });
}

inline const std::vector<ActionKind>& simple_compute_kinds() {
  static const std::vector<ActionKind> kinds = {ActionKind::Forward, ActionKind::FullBackward,
                                                ActionKind::InputBackward,
                                                ActionKind::WeightBackward};
  return kinds;
}

inline const std::vector<ActionKind>& simple_kinds() {
  static const std::vector<ActionKind> kinds = {
      ActionKind::Forward,        ActionKind::FullBackward,    ActionKind::InputBackward,
      ActionKind::WeightBackward, ActionKind::SendForward,     ActionKind::ReceiveForward,
      ActionKind::SendBackward,   ActionKind::ReceiveBackward, ActionKind::Unshard,
      ActionKind::Reshard,        ActionKind::ReduceGrad};
  return kinds;
}

inline rc::Gen<Action> random_container(const std::vector<ActionKind>& kinds) {
  return rc::gen::map(
      rc::gen::nonEmpty(rc::gen::container<std::vector<Action>>(random_simple_action(kinds))),
      [](std::vector<Action> parts) {
        return Action{.kind = ActionKind::Overlap, .parts = ActionParts(std::move(parts))};
      });
}

inline rc::Gen<Action> random_action() {
  return rc::gen::weightedOneOf<Action>({{8, random_simple_action(simple_kinds())},
                                         {2, random_container(simple_kinds())},
                                         {1, rc::gen::just(Action{})}});
}

inline rc::Gen<Schedule> random_schedule_of(const rc::Gen<Action>& action) {
  return rc::gen::map(
      rc::gen::nonEmpty(rc::gen::container<std::vector<std::vector<Action>>>(
          rc::gen::container<std::vector<Action>>(action))),
      [](std::vector<std::vector<Action>> ranks) { return Schedule{.ranks = std::move(ranks)}; });
}

// A compute order with idle slots, or a lowered schedule without; some ranks may be empty.
inline rc::Gen<Schedule> random_schedule() {
  const rc::Gen<Action> compute =
      rc::gen::weightedOneOf<Action>({{8, random_simple_action(simple_compute_kinds())},
                                      {2, random_container(simple_compute_kinds())},
                                      {3, rc::gen::just(Action{})}});
  const rc::Gen<Action> lowered = rc::gen::weightedOneOf<Action>(
      {{8, random_simple_action(simple_kinds())}, {1, random_container(simple_kinds())}});
  return rc::gen::oneOf(random_schedule_of(compute), random_schedule_of(lowered));
}

}  // namespace penstock
