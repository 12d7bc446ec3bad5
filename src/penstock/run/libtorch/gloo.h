#pragma once

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <sched.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/run/libtorch/c10d.h"

// Gloo as libtorch 1.13 and 2.x have it: held as what it is, because its base class differs.
namespace penstock {

using GlooPtr = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct GlooGroup {
  StorePtr store;
  int rank = 0;
  int size = 1;
  std::string address;                  // of this host, that the other ranks connect to
  std::chrono::milliseconds timeout{};  // for all to be connected
};

// Makes a device, and with it the thread of Gloo's that reads and writes the sockets. That thread
// asks again and again, with no pause, for a lock that others hold while they send and receive. If
// it took the core of one of them, both would be stuck until the next turn of the scheduler,
// milliseconds later; so it must not take a core from anybody, only ones that are free.
inline auto make_gloo_device(const std::string& address) {
  return std::async(std::launch::async,
                    [&address] {
                      const sched_param no_priority{};
                      // Threads inherit it. Whoever has chosen another policy than the default
                      // keeps it.
                      if (sched_getscheduler(0) == SCHED_OTHER) {
                        sched_setscheduler(0, SCHED_BATCH, &no_priority);
                      }
                      return c10d::ProcessGroupGloo::createDeviceForHostname(address);
                    })
      .get();
}

inline GlooPtr make_gloo(const GlooGroup& group) {
  auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
  // Without a device, Gloo takes the address that the host name has, whatever that is.
  options->devices.push_back(make_gloo_device(group.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(group.store, group.rank, group.size, options);
}

}  // namespace penstock
