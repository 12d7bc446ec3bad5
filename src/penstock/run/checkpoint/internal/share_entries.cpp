#include "penstock/run/checkpoint/internal/share_entries.h"

#include <algorithm>
#include <cstddef>

namespace penstock {

std::vector<std::vector<std::string>> share_entries(const std::vector<EntrySizes>& writers) {
  std::map<std::string, std::vector<std::size_t>> holders;
  for (std::size_t writer = 0; writer < writers.size(); ++writer) {
    for (const auto& [name, bytes] : writers[writer]) holders[name].push_back(writer);
  }
  std::vector<std::uint64_t> loads(writers.size(), 0);
  std::vector<std::vector<std::string>> shares(writers.size());
  const auto take = [&](const std::string& name, std::size_t writer) {
    loads[writer] += writers[writer].at(name);
    shares[writer].push_back(name);
  };
  // First what only one can write.
  for (const auto& [name, candidates] : holders) {
    if (candidates.size() == 1) take(name, candidates.front());
  }
  for (const auto& [name, candidates] : holders) {
    if (candidates.size() == 1) continue;
    std::size_t least = candidates.front();
    for (const std::size_t candidate : candidates) {
      if (loads[candidate] < loads[least]) least = candidate;
    }
    take(name, least);
  }
  for (auto& share : shares) std::sort(share.begin(), share.end());
  return shares;
}

}  // namespace penstock
