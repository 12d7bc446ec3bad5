#pragma once

#include "penstock/run/transport/progress_board.h"

namespace penstock {

// Tells whoever watches the ranks what an exchange waits for, as long as it lives.
class ExchangeWatch {
 public:
  // `num_messages` counts those of the exchange, from one watch to the next.
  ExchangeWatch(ProgressBoard& progress, ExchangeKind kind, int& num_messages)
      : progress_(progress), kind_(kind), num_messages_(num_messages) {}
  ExchangeWatch(const ExchangeWatch&) = delete;
  ExchangeWatch& operator=(const ExchangeWatch&) = delete;
  ExchangeWatch(ExchangeWatch&&) = delete;
  ExchangeWatch& operator=(ExchangeWatch&&) = delete;
  ~ExchangeWatch() { leave(); }

  // Sends a message of `rank`, which is here, to `partner`, or receives one from it.
  template <typename Transfer>
  void watch(int rank, int partner, bool is_sending, const Transfer& transfer) {
    if (rank_ != rank) leave();
    rank_ = rank;
    progress_.set_exchange(rank, {.kind = kind_,
                                  .num_messages = num_messages_++,
                                  .partner = partner,
                                  .is_sending = is_sending});
    progress_.set_waiting(rank, true);
    transfer();
    progress_.set_waiting(rank, false);
  }

 private:
  void leave() {
    if (rank_ == ExchangeProgress::kNobody) return;
    progress_.set_waiting(rank_, false);
    progress_.set_exchange(rank_, {});
  }

  ProgressBoard& progress_;
  ExchangeKind kind_;
  int& num_messages_;
  int rank_ = ExchangeProgress::kNobody;
};

}  // namespace penstock
