#include "penstock/run/pipeline/rank_exchange.h"

#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/run/pipeline/internal/exchange_watch.h"

namespace penstock {

int ExchangeKeys::num_stages() const {
  return (num_ranks * num_ranks + num_microbatches - 1) / num_microbatches;
}

MessageKey ExchangeKeys::key(int from_rank, int to_rank, std::int64_t number) const {
  const int place = from_rank * num_ranks + to_rank;
  return {.stage = first_stage + place / num_microbatches,
          .microbatch = place % num_microbatches,
          .direction = number % 2 == 0 ? Direction::Forward : Direction::Backward};
}

void RankExchange::tell(const at::Tensor& value) {
  transport_.begin_step(++step_);
  ExchangeWatch exchange(progress_, ExchangeKind::Values, num_messages_);
  Message message;
  for (int other = 0; other < keys_.num_ranks; ++other) {
    if (other == rank_) continue;
    message.emplace_back(value);
    exchange.watch(rank_, other, true,
                   [&] { transport_.send(other, keys_.key(rank_, other, num_told_), message); });
    message.clear();
  }
  own_.push_back(value);
  ++num_told_;
}

std::vector<at::Tensor> RankExchange::hear() {
  PENSTOCK_ASSERT(!own_.empty(), "who hears has told before");
  std::vector<at::Tensor> told(static_cast<std::size_t>(keys_.num_ranks));
  ExchangeWatch exchange(progress_, ExchangeKind::Values, num_messages_);
  Message message;
  for (int other = 0; other < keys_.num_ranks; ++other) {
    at::Tensor& value = told[static_cast<std::size_t>(other)];
    if (other == rank_) {
      value = own_.front();
      own_.erase(own_.begin());
      continue;
    }
    try {
      exchange.watch(rank_, other, false, [&] {
        transport_.receive(other, keys_.key(other, rank_, num_heard_), message);
      });
    } catch (const TransportError& error) {
      throw TransportError(
          fmt::format("rank {} does not hear from rank {} at the end of a list: {}", rank_, other,
                      error.what()));
    }
    PENSTOCK_ASSERT(message.size() == 1, "one value is told at a time");
    value = std::move(message.front()).toTensor();
    message.clear();
  }
  ++num_heard_;
  return told;
}

}  // namespace penstock
