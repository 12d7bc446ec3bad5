#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// The messages of an exchange, beside those of a program: they go on where its stages end.
struct ExchangeKeys {
  int first_stage = 0;
  int num_ranks = 1;
  int num_microbatches = 1;

  // How many further stages the messages take.
  int num_stages() const;
  // The message of a rank to another one. Two that follow each other have different keys.
  MessageKey key(int from_rank, int to_rank, std::int64_t number) const;
};

// Lets a rank tell all others something small between its lists, and hear what they tell, without
// waiting for them in between. All ranks tell and hear equally often, and nobody tells three times
// before all have heard the first. Used by the thread of its rank.
class RankExchange {
 public:
  // `step` is the number of the transport's step that comes next.
  RankExchange(Fabric& fabric, int rank, const ExchangeKeys& keys, std::int64_t step)
      : transport_(fabric.endpoint(rank)),
        progress_(fabric.progress()),
        rank_(rank),
        keys_(keys),
        step_(step) {}

  // Tells `value`. What is sent from here on, by the next list too, belongs to a new step.
  void tell(const at::Tensor& value);

  // What all ranks have told, by rank; the first time what they have told first, and so on. Waits
  // for them. Throws TransportError if one is not heard of within the deadline.
  std::vector<at::Tensor> hear();

  // The step of the transport for the list that comes next; new_step() if that is run once more.
  std::int64_t step() const { return step_; }
  void new_step() { ++step_; }

 private:
  Transport& transport_;
  ProgressBoard& progress_;
  int rank_;
  ExchangeKeys keys_;
  std::int64_t step_;
  std::int64_t num_told_ = 0;
  std::int64_t num_heard_ = 0;
  int num_messages_ = 0;         // sent or received
  std::vector<at::Tensor> own_;  // told and not heard
};

}  // namespace penstock
