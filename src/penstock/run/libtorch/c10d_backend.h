#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "penstock/run/libtorch/backend.h"
#include "penstock/run/libtorch/sigpipe_block.h"

// How the backends of c10d are used. Included by few sources only: it is large.
namespace penstock {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct ConnectOptions {
  std::chrono::milliseconds timeout{};  // for all to be connected
  // Called again and again while they connect. What it throws ends the wait for them.
  std::function<void()> look = {};
};

// What `connect` returns. Throws what it or `look` does, or a std::exception if not all are
// connected in time.
//
// A backend cannot be interrupted when it waits for a rank. So a thread of its own does that, and
// is left behind with the objects of the backend if the wait has to end sooner.
inline BackendPtr connect_backend(std::function<BackendPtr()> connect,
                                  const ConnectOptions& options) {
  std::packaged_task<BackendPtr()> task([connect = std::move(connect)] {
    const SigpipeBlock block;
    return connect();
  });
  std::future<BackendPtr> connected = task.get_future();
  std::thread thread(std::move(task));
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  constexpr auto kPause = std::chrono::milliseconds(10);
  try {
    while (connected.wait_for(kPause) != std::future_status::ready) {
      if (options.look) options.look();
      if (std::chrono::steady_clock::now() < end) continue;
      throw std::runtime_error(fmt::format("not all were connected within {:.3g} s",
                                           std::chrono::duration<double>(options.timeout).count()));
    }
  } catch (...) {
    thread.detach();
    throw;
  }
  thread.join();
  return connected.get();
}

// The rank at the other end of a message, and the number that tells messages apart.
struct MessageEnd {
  int rank = 0;
  int tag = 0;
  bool may_raise_sigpipe = true;  // false if the program ignores that signal
};

inline WorkPtr post_send(const BackendPtr& backend, std::vector<at::Tensor>& tensors,
                         const MessageEnd& to) {
  const SigpipeBlock block(to.may_raise_sigpipe);
  return backend->send(tensors, to.rank, to.tag);
}

// Writes as well: it tells the sender that there is room.
inline WorkPtr post_receive(const BackendPtr& backend, std::vector<at::Tensor>& tensors,
                            const MessageEnd& from) {
  const SigpipeBlock block(from.may_raise_sigpipe);
  return backend->recv(tensors, from.rank, from.tag);
}

}  // namespace penstock
