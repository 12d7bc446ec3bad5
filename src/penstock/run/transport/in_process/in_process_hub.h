#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/threads/doorbell.h"
#include "penstock/run/transport/progress_board.h"
#include "penstock/run/transport/rank_group.h"
#include "penstock/run/transport/transport.h"

namespace penstock {

// Connects ranks that are threads of one process. Every message has a place of its own, by key:
// the sender puts the tensors there, the receiver takes them, and nothing is copied.
//
// A message is late when none of the ranks has moved, by progress(), for the deadline: one that
// waits for a rank which waits itself goes on waiting as long as the others work.
class InProcessHub final : public Fabric {
 public:
  InProcessHub(int num_ranks, Extent extent, WaitPolicy policy);
  InProcessHub(const InProcessHub&) = delete;
  InProcessHub& operator=(const InProcessHub&) = delete;
  InProcessHub(InProcessHub&&) = delete;
  InProcessHub& operator=(InProcessHub&&) = delete;
  ~InProcessHub() override;

  Transport& endpoint(int rank) override;
  ProgressBoard& progress() override { return progress_; }
  void begin_step(const Schedule& program) override;
  void end_step() override {}

  // Forgets what the step has left, so that the next one can begin. Returns `failure`.
  std::exception_ptr fail_step(std::exception_ptr failure) override;

  bool is_stopped() const override { return is_stopped_.load(std::memory_order_relaxed); }

 private:
  class Endpoint;
  // One per message; on a cache line of its own, for two threads work on neighbours.
  struct alignas(64) Place {
    std::atomic<bool> is_full = false;
    Message message;
  };

  Place& place_of(MessageKey key);
  void send(int to_rank, MessageKey key, Message& message);
  void receive(int rank, int from_rank, MessageKey key, Message& message);
  template <typename Condition>
  bool wait(int rank, const Condition& is_ready);
  void stop() noexcept;
  void reset();

  Extent extent_;
  WaitPolicy policy_;
  ProgressBoard progress_;
  std::atomic<bool> is_stopped_ = false;
  std::vector<Place> places_;
  std::vector<Doorbell> doorbells_;                   // by receiving rank
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // by rank
};

}  // namespace penstock
