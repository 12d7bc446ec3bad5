#pragma once

#include <vector>

#include "penstock/plan/schedule/action.h"

namespace penstock {

// Writes the list of one rank, one verb per kind, so that a generator reads like its description.
class ActionList {
 public:
  void idle(int count = 1) {
    actions_.insert(actions_.end(), static_cast<std::size_t>(count), Action{});
  }
  void forward(int stage, int microbatch) { add(stage, ActionKind::Forward, microbatch); }
  void backward(int stage, int microbatch) { add(stage, ActionKind::FullBackward, microbatch); }
  void input_backward(int stage, int microbatch) {
    add(stage, ActionKind::InputBackward, microbatch);
  }
  void weight_backward(int stage, int microbatch) {
    add(stage, ActionKind::WeightBackward, microbatch);
  }
  void add(int stage, ActionKind kind, int microbatch) {
    actions_.push_back({.stage = stage, .kind = kind, .microbatch = microbatch});
  }
  void add(Action action) { actions_.push_back(std::move(action)); }

  void reserve(std::size_t count) { actions_.reserve(count); }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  std::vector<Action> actions_;
};

}  // namespace penstock
