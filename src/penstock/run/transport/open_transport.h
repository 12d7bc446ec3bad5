#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/libtorch/backend.h"
#include "penstock/run/transport/transport.h"
#include "penstock/run/world/world.h"

namespace penstock {

enum class TransportKind {
  Automatic,     // shared memory between ranks of one host, a backend of c10d between hosts
  SharedMemory,  // an error if two ranks cannot share memory
  Gloo,          // a backend of c10d: Penstock makes it
  OwnBackend,    // another backend of c10d: the program makes it
};

// Whether this Penstock was built with Gloo.
bool has_gloo();

struct ProcessTransportOptions {
  TransportKind kind = TransportKind::Automatic;
  Extent extent = {};             // of the program: the messages there are
  std::uint64_t fingerprint = 0;  // of the program; the same on all ranks
  // Makes the backend between hosts, in place of Gloo, where the program has one of its own: MPI or
  // UCC, say, if libtorch was built with them. It must tell messages apart by their tags, take
  // tensors in main memory, and be able to say whether an operation is completed. A Gloo that the
  // program uses itself will do as well.
  //
  // The messages of a transport have tags from 0 up, 2^20 for each stage of the program; whoever
  // else uses the backend must choose larger ones.
  MakeBackend make_backend = {};
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);  // of every wait
  // How long a transport that ends waits for the others to take what it has sent; 0: the deadline.
  std::chrono::nanoseconds last_wait = {};
  // How long a wait spins before it parks. Default: 100 us if every rank of this host has a core.
  std::optional<std::chrono::nanoseconds> spin = std::nullopt;
  std::chrono::milliseconds connect_timeout = {};  // for all ranks to come; 0: that of the world
  // Called again and again while ranks are missing. What it throws ends the opening.
  std::function<void()> look = {};
};

// This process's way to the other ranks of `group`, which number themselves by their place in it.
// To be called by all of them. Throws TransportError, which names ranks, if they do not find each
// other or do not run the same program.
//
// A transport that was stopped, or has thrown a TransportError other than a deadline, is finished;
// the group may open another one. `world` must outlive the call only.
std::unique_ptr<Transport> open_transport(World& world, const Group& group,
                                          const ProcessTransportOptions& options);

}  // namespace penstock
