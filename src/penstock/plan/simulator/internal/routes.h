#pragma once

#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/placement.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// Where the values that cross ranks are made, sent and received in a lowered, valid program.
class Routes {
 public:
  Routes(const Schedule& program, Extent extent);

  const Placement& placement() const { return placement_; }

  // The receive on `rank` of what `part`, a computing action of it, needs; absent if it needs
  // nothing or if `rank` makes it by itself.
  Position receive_for(const Action& part, int rank) const {
    if (part.kind == ActionKind::Forward && part.stage > 0) {
      if (placement_.rank_of(part.stage - 1) == rank) return {};
      return place(rank, activations_.at(part.stage, part.microbatch).received);
    }
    if (makes_input_gradient(part.kind) && part.stage + 1 < extent_.num_stages) {
      if (placement_.rank_of(part.stage + 1) == rank) return {};
      return place(rank, gradients_.at(part.stage, part.microbatch).received);
    }
    return {};
  }

  Position receive_of(const Action& send) const {
    const bool is_activation = send.kind == ActionKind::SendForward;
    const int stage = is_activation ? send.stage + 1 : send.stage - 1;
    const Route& route = (is_activation ? activations_ : gradients_).at(stage, send.microbatch);
    return place(placement_.rank_of(stage), route.received);
  }
  Position send_of(const Action& receive) const {
    return place(sender_of(receive), route_of(receive).sent);
  }
  Position producer_of(const Action& receive) const {
    return place(sender_of(receive), route_of(receive).made);
  }

 private:
  // Steps of the ranks that hold the two stages; -1 if there is none.
  struct Route {
    int made = -1;
    int sent = -1;
    int received = -1;
  };

  static Position place(int rank, int step) { return step < 0 ? Position{} : Position{rank, step}; }
  int sender_of(const Action& receive) const {
    const bool is_activation = receive.kind == ActionKind::ReceiveForward;
    return placement_.rank_of(is_activation ? receive.stage - 1 : receive.stage + 1);
  }
  const Route& route_of(const Action& receive) const {
    return (receive.kind == ActionKind::ReceiveForward ? activations_ : gradients_)
        .at(receive.stage, receive.microbatch);
  }
  void add(const Action& action, int step);

  Extent extent_;
  Placement placement_;
  MicrobatchGrid<Route> activations_;  // by the stage and microbatch that needs them
  MicrobatchGrid<Route> gradients_;
};

}  // namespace penstock
