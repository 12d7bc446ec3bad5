#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>

#include <sched.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/libtorch/c10d_backend.h"
#include "penstock/run/libtorch/sigpipe_block.h"

// The backend of c10d that every libtorch has.
namespace penstock {

struct GlooGroup {
  StorePtr store;
  int rank = 0;
  int size = 1;
  std::string address;  // of this host, that the other ranks connect to
  ConnectOptions connect;
};

// Makes a device, and with it the thread of Gloo's that reads and writes the sockets. That thread
// asks again and again, with no pause, for a lock that others hold while they send and receive. If
// it took the core of one of them, both would be stuck until the next turn of the scheduler,
// milliseconds later; so it must not take a core from anybody, only ones that are free.
inline auto make_gloo_device(const std::string& address) {
  return std::async(std::launch::async,
                    [&address] {
                      const SigpipeBlock block;
                      const sched_param no_priority{};
                      // Threads inherit both. Whoever has chosen another policy than the default
                      // keeps it.
                      if (sched_getscheduler(0) == SCHED_OTHER) {
                        sched_setscheduler(0, SCHED_BATCH, &no_priority);
                      }
                      return c10d::ProcessGroupGloo::createDeviceForHostname(address);
                    })
      .get();
}

// Throws as connect_backend() does. Gloo waits for one rank after the other.
inline BackendPtr make_gloo(const GlooGroup& group) {
  auto options = c10d::ProcessGroupGloo::Options::create(group.connect.timeout);
  // Without a device, Gloo takes the address that the host name has, whatever that is.
  options->devices.push_back(make_gloo_device(group.address));
  return connect_backend(
      [store = group.store, rank = group.rank, size = group.size, options] {
        return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
      },
      group.connect);
}

}  // namespace penstock
