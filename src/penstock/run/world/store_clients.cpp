#include "penstock/run/world/store_clients.h"

#include <algorithm>
#include <utility>

#include "penstock/run/world/internal/store_sockets.h"

namespace penstock {
namespace {

bool intersect(const std::set<ConnectionEnd>& ends, const std::vector<ConnectionEnd>& wanted) {
  return std::any_of(wanted.begin(), wanted.end(),
                     [&ends](const ConnectionEnd& end) { return ends.contains(end); });
}

}  // namespace

void StoreClients::look() {
  if (port_ != 0 && ends_by_rank_.empty()) ends_.merge(open_ends_at_port(port_));
}

void StoreClients::name(std::vector<std::vector<std::string>> ends_by_rank) {
  look();
  ends_by_rank_ = std::move(ends_by_rank);
  for (std::vector<ConnectionEnd>& ends : ends_by_rank_) {
    if (!intersect(ends_, ends)) ends.clear();
  }
  ends_.clear();
}

std::vector<int> StoreClients::take_gone() {
  std::vector<int> gone;
  if (ends_by_rank_.empty()) return gone;
  const std::set<ConnectionEnd> open = open_ends_at_port(port_);
  for (std::size_t rank = 0; rank < ends_by_rank_.size(); ++rank) {
    std::vector<ConnectionEnd>& ends = ends_by_rank_[rank];
    if (ends.empty() || intersect(open, ends)) continue;
    ends.clear();
    gone.push_back(static_cast<int>(rank));
  }
  return gone;
}

bool StoreClients::has_any() const {
  return std::any_of(ends_by_rank_.begin(), ends_by_rank_.end(),
                     [](const auto& ends) { return !ends.empty(); });
}

}  // namespace penstock
