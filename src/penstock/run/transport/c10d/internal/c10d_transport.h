#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/libtorch/backend.h"
#include "penstock/run/transport/transport.h"
#include "penstock/run/world/store.h"

namespace penstock {

struct C10dTransportOptions {
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

// Connects ranks that are processes of any host, over a backend of libtorch's c10d. To be called by
// all ranks; throws TransportError if they do not find each other.
//
// A message is one message of the backend, header and all. Two exceptions: a large tensor follows
// in a second one, from where it is, if the last message with that key had it, too; and what is
// larger than the receiver has reason to expect has its rest in another one.
std::unique_ptr<Transport> make_backend_transport(Store& store, const C10dTransportOptions& options,
                                                  const MakeBackend& make);

// The same over Gloo. Throws TransportError if this Penstock was built without it.
std::unique_ptr<Transport> make_gloo_transport(Store& store, const C10dTransportOptions& options);

// The same over what `connect` returns.
std::unique_ptr<Transport> make_transport_over(const std::function<BackendPtr()>& connect,
                                               const C10dTransportOptions& options);

}  // namespace penstock
