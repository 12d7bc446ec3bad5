#pragma once

#include <set>
#include <string>
#include <vector>

namespace penstock {

// Sees which ranks have hung up, in the process that serves the store they meet at: a rank that
// dies does so at once, on whatever host it is, long before anything else is connected to it.
class StoreClients {
 public:
  // Sees nothing.
  StoreClients() = default;

  // Of the store that this process serves at `port`.
  explicit StoreClients(int port) : port_(port) {}

  // Takes note of who is connected now, until name() has told who that is.
  void look();

  // `ends_by_rank`: the ends of each rank's own connections to the store as it knows them,
  // "address:port". Where addresses are translated on the way, they are others here; such a rank,
  // and one that was never looked at, is not seen.
  void name(std::vector<std::vector<std::string>> ends_by_rank);

  // Ranks that have hung up since they were seen, each of them once.
  std::vector<int> take_gone();

  // Whether any rank is seen that was not taken for gone.
  bool has_any() const;

 private:
  int port_ = 0;
  std::set<std::string> ends_;  // that were seen, until they are named
  std::vector<std::vector<std::string>>
      ends_by_rank_;  // of those that are there, as far as they are seen
};

}  // namespace penstock
