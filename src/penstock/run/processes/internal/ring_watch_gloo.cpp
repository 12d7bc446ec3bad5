#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "penstock/run/libtorch/gloo.h"
#include "penstock/run/processes/internal/ring_watch.h"

namespace penstock {

class RingWatch::Impl {
 public:
  Impl(World& world, const Group& group, std::function<void(int)> on_closed,
       std::function<void()> look)
      : ranks_(group.ranks),
        self_(group.rank_of(world.rank())),
        on_closed_(std::move(on_closed)),
        gloo_(make_gloo(
            {.store = c10::make_intrusive<c10d::PrefixStore>(
                 fmt::format("watch/{}/{}", group.name, world.next_count("watch/" + group.name)),
                 StorePtr::reclaim_copy(&world.store().native())),
             .rank = self_,
             .size = group.size(),
             .address = world.member(world.rank()).address,
             .connect = {.timeout = world.timeout(), .look = std::move(look)}})),
        thread_([this] { watch(); }) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      if (wait_) wait_->abort();
    }
    thread_.join();
  }

 private:
  void watch() {
    const int size = static_cast<int>(ranks_.size());
    for (int next = (self_ + 1) % size; next != self_; next = (next + 1) % size) {
      wait_for_close(next);
      {
        const std::lock_guard lock(mutex_);
        if (is_ending_) return;
      }
      on_closed_(ranks_[static_cast<std::size_t>(next)]);
    }
  }

  // Nobody ever sends, so the receive ends when the connection does, or when it is aborted.
  void wait_for_close(int rank) {
    constexpr auto kNoLimit = std::chrono::hours(24 * 365);
    try {
      std::vector<at::Tensor> nothing = {at::empty({1}, at::kByte)};
      WorkPtr wait;
      {
        const std::lock_guard lock(mutex_);
        if (is_ending_) return;
        wait_ = post_receive(gloo_, nothing, {.rank = rank});
        wait = wait_;
      }
      wait->wait(kNoLimit);
    } catch (const std::exception&) {  // what it says does not matter: it is over
    }
    const std::lock_guard lock(mutex_);
    wait_.reset();
  }

  std::vector<int> ranks_;
  int self_;
  std::function<void(int)> on_closed_;
  BackendPtr gloo_;
  std::mutex mutex_;  // guards is_ending_ and wait_
  bool is_ending_ = false;
  WorkPtr wait_;
  std::thread thread_;
};

RingWatch::RingWatch(World& world, const Group& group, std::function<void(int)> on_closed,
                     std::function<void()> look)
    : impl_(std::make_unique<Impl>(world, group, std::move(on_closed), std::move(look))) {}

RingWatch::~RingWatch() = default;

}  // namespace penstock
