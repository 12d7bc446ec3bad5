#pragma once

#include <functional>
#include <memory>

#include "penstock/run/world/world.h"

namespace penstock {

// Notices, within milliseconds, that the next rank of a group has closed its connection: because it
// has ended, in whatever way. Then watches the one after it, until none is left. A thread of its
// own waits on a Gloo connection that carries no messages.
class RingWatch {
 public:
  // To be called by all ranks of `group`, which has at least two. `on_closed` gets the rank in the
  // world, on the thread of this object. `look` is called again and again while they connect; what
  // it throws ends that.
  RingWatch(World& world, const Group& group, std::function<void(int rank)> on_closed,
            std::function<void()> look);
  RingWatch(const RingWatch&) = delete;
  RingWatch& operator=(const RingWatch&) = delete;
  RingWatch(RingWatch&&) = delete;
  RingWatch& operator=(RingWatch&&) = delete;
  ~RingWatch();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
