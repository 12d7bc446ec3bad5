#include "penstock/run/pipeline/internal/replica_hubs.h"

#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/threads/wait_policy.h"

namespace penstock {

// A hub that several pipelines use: none of them may tidy it up while others are at work.
class ReplicaHubs::SharedHub final : public Fabric {
 public:
  SharedHub(std::shared_ptr<InProcessHub> hub, int replica)
      : hub_(std::move(hub)), replica_(replica) {}

  Transport& endpoint(int rank) override { return hub_->endpoint(rank); }
  ProgressBoard& progress() override { return hub_->progress(); }
  void begin_step(const Schedule& /*program*/) override {
    hub_->progress().set_finished(replica_, 0);
  }
  void end_step() override {}
  std::exception_ptr fail_step(std::exception_ptr failure) override { return failure; }
  bool is_stopped() const override { return hub_->is_stopped(); }

 private:
  std::shared_ptr<InProcessHub> hub_;
  int replica_;
};

class ReplicaHubs::Group final : public RankGroup {
 public:
  Group(std::shared_ptr<ReplicaHubs> hubs, int replica)
      : hubs_(std::move(hubs)), replica_(replica) {}

  int num_ranks() const override { return hubs_->num_replicas_; }
  std::vector<int> local_ranks() const override { return {replica_}; }
  int num_ranks_in_process() const override { return hubs_->num_replicas_; }
  int num_recoveries() const override {
    const std::lock_guard lock(hubs_->mutex_);
    return hubs_->num_resets_;
  }
  std::unique_ptr<Fabric> connect(const Schedule& /*program*/,
                                  const FabricOptions& options) override {
    return std::make_unique<SharedHub>(hubs_->hub(num_connections_++, options), replica_);
  }

 private:
  std::shared_ptr<ReplicaHubs> hubs_;
  int replica_;
  std::size_t num_connections_ = 0;
};

std::shared_ptr<RankGroup> ReplicaHubs::group_of(int replica) {
  return std::make_shared<Group>(shared_from_this(), replica);
}

std::shared_ptr<InProcessHub> ReplicaHubs::hub(std::size_t number, const FabricOptions& options) {
  const std::lock_guard lock(mutex_);
  if (number == hubs_.size()) {
    hubs_.push_back(std::make_shared<InProcessHub>(
        num_replicas_, options.extent,
        wait_policy_for(options.num_busy_threads, options.deadline)));
    extents_.push_back(options.extent);
  }
  if (extents_[number].num_stages != options.extent.num_stages) {
    throw ArgumentError(fmt::format(
        "the stages of rank {} have not as many buckets of parameters on all replicas; make all "
        "replicas alike",
        number));
  }
  return hubs_[number];
}

void ReplicaHubs::stop() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& hub : hubs_) hub->endpoint(0).stop();
}

void ReplicaHubs::reset() {
  const std::lock_guard lock(mutex_);
  for (const auto& hub : hubs_) hub->fail_step(nullptr);
  ++num_resets_;
}

}  // namespace penstock
