#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "penstock/run/transport/in_process/in_process_hub.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// A fabric that several pipelines of this process share.
class SharedFabric final : public Fabric {
 public:
  explicit SharedFabric(std::shared_ptr<InProcessHub> hub) : hub_(std::move(hub)) {}
  Transport& endpoint(int rank) override { return hub_->endpoint(rank); }
  ProgressBoard& progress() override { return hub_->progress(); }
  void begin_step(const Schedule& /*program*/) override {}
  void end_step() override {}
  std::exception_ptr fail_step(std::exception_ptr failure) override { return failure; }

 private:
  std::shared_ptr<InProcessHub> hub_;
};

class ThreadGroup final : public RankGroup {
 public:
  ThreadGroup(std::shared_ptr<InProcessHub> hub, int num_ranks, std::vector<int> local_ranks)
      : hub_(std::move(hub)), num_ranks_(num_ranks), local_ranks_(std::move(local_ranks)) {}
  int num_ranks() const override { return num_ranks_; }
  std::vector<int> local_ranks() const override { return local_ranks_; }
  std::unique_ptr<Fabric> connect(const Schedule& /*program*/,
                                  const FabricOptions& /*options*/) override {
    return std::make_unique<SharedFabric>(hub_);
  }

 private:
  std::shared_ptr<InProcessHub> hub_;
  int num_ranks_;
  std::vector<int> local_ranks_;
};

}  // namespace penstock
