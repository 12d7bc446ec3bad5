#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/transport/transport.h"
#include "penstock/run/world/store.h"

namespace penstock {

struct GlooTransportOptions {
  int rank = 0;
  int num_ranks = 1;
  Extent extent = {};
  std::uint64_t fingerprint = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);  // of every wait
  // For the others to take what is left when the transport ends.
  std::chrono::nanoseconds last_wait = std::chrono::seconds(30);
  std::string name;     // that no other transport in the store has
  std::string address;  // of this rank, for the others
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);
  // Called again and again while ranks connect. What it throws, an Error, ends that.
  std::function<void()> look = {};
};

// Connects ranks that are processes of any host, over the Gloo of libtorch. To be called by all
// ranks; throws TransportError if they do not find each other, or if this Penstock was built
// without Gloo.
//
// A message is one message of Gloo, header and all, unless it is larger than the largest before it
// with the same key: then a second one has the rest.
std::unique_ptr<Transport> make_gloo_transport(Store& store, const GlooTransportOptions& options);

}  // namespace penstock
