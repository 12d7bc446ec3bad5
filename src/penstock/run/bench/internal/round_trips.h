#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "penstock/run/libtorch/backend.h"
#include "penstock/run/world/world.h"

namespace penstock {

// Something that two ranks send messages of one size back and forth with.
class RoundTrips {
 public:
  RoundTrips() = default;
  RoundTrips(const RoundTrips&) = delete;
  RoundTrips& operator=(const RoundTrips&) = delete;
  RoundTrips(RoundTrips&&) = delete;
  RoundTrips& operator=(RoundTrips&&) = delete;
  virtual ~RoundTrips() = default;

  // From rank 0 to rank 1 and back, `count` times. Called by both ranks.
  virtual void run(int count) = 0;
};

struct RoundTripOptions {
  std::int64_t bytes = 0;
  bool reads = false;         // the receiver reads every element
  bool pins_threads = false;  // rank r to core r
};

// Of libtorch's Gloo alone. For both ranks of `world`; `name` is used once.
class BareGloo {
 public:
  BareGloo(World& world, const std::string& name);
  BareGloo(const BareGloo&) = delete;
  BareGloo& operator=(const BareGloo&) = delete;
  BareGloo(BareGloo&&) = delete;
  BareGloo& operator=(BareGloo&&) = delete;
  ~BareGloo();

  std::unique_ptr<RoundTrips> round_trips(const RoundTripOptions& options);

  // For a transport over the same connections.
  MakeBackend maker() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
