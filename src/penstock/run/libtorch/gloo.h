#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/libtorch/sigpipe_block.h"

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
  // Called again and again while they connect. What it throws ends the wait for them.
  std::function<void()> look = {};
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

// Throws what `look` does, or a std::exception if not all are connected in time.
//
// Gloo cannot be interrupted when it waits for a rank, and waits for one after the other. So a
// thread of its own does that, and is left behind with Gloo's objects if the wait has to end
// sooner.
inline GlooPtr make_gloo(const GlooGroup& group) {
  auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
  // Without a device, Gloo takes the address that the host name has, whatever that is.
  options->devices.push_back(make_gloo_device(group.address));
  std::packaged_task<GlooPtr()> connect(
      [store = group.store, rank = group.rank, size = group.size, options] {
        const SigpipeBlock block;
        return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
      });
  std::future<GlooPtr> connected = connect.get_future();
  std::thread thread(std::move(connect));
  const auto end = std::chrono::steady_clock::now() + group.timeout;
  constexpr auto kPause = std::chrono::milliseconds(10);
  try {
    while (connected.wait_for(kPause) != std::future_status::ready) {
      if (group.look) group.look();
      if (std::chrono::steady_clock::now() < end) continue;
      throw std::runtime_error(fmt::format("not all were connected within {:.3g} s",
                                           std::chrono::duration<double>(group.timeout).count()));
    }
  } catch (...) {
    thread.detach();
    throw;
  }
  thread.join();
  return connected.get();
}

inline WorkPtr gloo_send(const GlooPtr& gloo, std::vector<at::Tensor>& tensors, int to_rank,
                         int tag) {
  const SigpipeBlock block;
  return gloo->send(tensors, to_rank, tag);
}

// Writes as well: it tells the sender that there is room.
inline WorkPtr gloo_receive(const GlooPtr& gloo, std::vector<at::Tensor>& tensors, int from_rank,
                            int tag) {
  const SigpipeBlock block;
  return gloo->recv(tensors, from_rank, tag);
}

}  // namespace penstock
