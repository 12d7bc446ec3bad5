#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "penstock/run/processes/group_error.h"
#include "penstock/run/processes/internal/host_watch.h"
#include "penstock/run/processes/internal/ring_watch.h"

// For builds without Gloo, whose ranks share a host: the kernel tells when a process has ended.
namespace penstock {

class RingWatch::Impl {
 public:
  Impl(World& world, const Group& group, std::function<void(int)> on_closed)
      : ranks_(group.ranks),
        self_(group.rank_of(world.rank())),
        on_closed_(std::move(on_closed)),
        end_(eventfd(0, EFD_CLOEXEC)) {
    for (const int rank : ranks_) {
      const int process = world.member(rank).process_id;
      const int descriptor = open_process(process);
      if (descriptor < 0) {
        throw GroupError(
            fmt::format("rank {} (pid {}) cannot be watched: it is gone, or on another "
                        "host, which needs a build with Gloo",
                        rank, process));
      }
      descriptors_.push_back(descriptor);
    }
    thread_ = std::thread([this] { watch(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    eventfd_write(end_, 1);
    thread_.join();
    for (const int descriptor : descriptors_) close(descriptor);
    close(end_);
  }

 private:
  void watch() {
    const int size = static_cast<int>(ranks_.size());
    for (int next = (self_ + 1) % size; next != self_; next = (next + 1) % size) {
      std::array<pollfd, 2> polled = {
          pollfd{end_, POLLIN, 0}, pollfd{descriptors_[static_cast<std::size_t>(next)], POLLIN, 0}};
      while (polled[0].revents == 0 && polled[1].revents == 0) {
        poll(polled.data(), polled.size(), -1);
      }
      if (polled[0].revents != 0) return;
      on_closed_(ranks_[static_cast<std::size_t>(next)]);
    }
  }

  std::vector<int> ranks_;
  int self_;
  std::function<void(int)> on_closed_;
  int end_;                       // rung when this object ends
  std::vector<int> descriptors_;  // of the processes, by rank of the group
  std::thread thread_;
};

RingWatch::RingWatch(World& world, const Group& group, std::function<void(int)> on_closed,
                     std::function<void()> /*look*/)
    : impl_(std::make_unique<Impl>(world, group, std::move(on_closed))) {}

RingWatch::~RingWatch() = default;

}  // namespace penstock
