#include "penstock/run/pipeline/internal/shared_exchange.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <ATen/core/ivalue.h>

#include "penstock/run/pipeline/internal/exchange_watch.h"
#include "penstock/run/transport/transport.h"

namespace penstock {
namespace {

// By stage, the ranks other than its own that use one of its parameters.
std::map<int, std::set<int>> partners_of(std::span<const SharedUse> uses,
                                         const Placement& placement) {
  std::map<std::string, std::set<int>> ranks;
  for (const SharedUse& use : uses) ranks[use.name].insert(placement.rank_of(use.stage));
  std::map<int, std::set<int>> partners;
  for (const SharedUse& use : uses) {
    partners[use.stage].insert(ranks[use.name].begin(), ranks[use.name].end());
  }
  for (auto& [stage, others] : partners) others.erase(placement.rank_of(stage));
  return partners;
}

}  // namespace

SharedExchange::SharedExchange(std::span<const SharedUse> uses, const Placement& placement,
                               Extent extent, std::span<const int> local_ranks)
    : extent_(extent) {
  const auto is_local = [&](int rank) {
    return std::find(local_ranks.begin(), local_ranks.end(), rank) != local_ranks.end();
  };
  for (const auto& [stage, partners] : partners_of(uses, placement)) {
    bool is_needed = true;
    for (const int to_rank : partners) {
      Route route{stage, placement.rank_of(stage), to_rank, extent_.num_stages++, is_needed};
      if (is_local(route.from_rank) && !is_local(to_rank)) outgoing_.push_back(route);
      if (!is_local(route.from_rank) && is_local(to_rank)) {
        incoming_.push_back(route);
        is_needed = false;
      }
    }
  }
}

void SharedExchange::run(Fabric& fabric, SharedGradients& gradients) const {
  const auto for_each_message = [this](const std::vector<Route>& routes, const auto& visit) {
    for (int microbatch = 0; microbatch < extent_.num_microbatches; ++microbatch) {
      for (const Route& route : routes) {
        visit(route, microbatch, MessageKey{route.key_stage, microbatch, Direction::Backward});
      }
    }
  };
  if (incoming_.empty() && outgoing_.empty()) return;
  int num_messages = 0;
  ExchangeWatch exchange(fabric.progress(), ExchangeKind::SharedGradients, num_messages);
  for_each_message(incoming_, [&](const Route& route, int /*microbatch*/, MessageKey key) {
    fabric.endpoint(route.to_rank).expect(route.from_rank, key);
  });
  Message message;
  for_each_message(outgoing_, [&](const Route& route, int microbatch, MessageKey key) {
    message.clear();
    for (at::Tensor& gradient : gradients.pending(route.stage, microbatch)) {
      message.emplace_back(std::move(gradient));
    }
    exchange.watch(route.from_rank, route.to_rank, true,
                   [&] { fabric.endpoint(route.from_rank).send(route.to_rank, key, message); });
  });
  std::vector<at::Tensor> received;
  for_each_message(incoming_, [&](const Route& route, int microbatch, MessageKey key) {
    exchange.watch(route.to_rank, route.from_rank, false,
                   [&] { fabric.endpoint(route.to_rank).receive(route.from_rank, key, message); });
    received.clear();
    for (c10::IValue& value : message) received.push_back(std::move(value).toTensor());
    if (route.is_needed) gradients.add(route.stage, microbatch, received);
    message.clear();
  });
}

}  // namespace penstock
