#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/run/world/group.h"
#include "penstock/run/world/store.h"
#include "penstock/run/world/store_clients.h"
#include "penstock/run/world/world_options.h"

namespace penstock {

// What each rank tells the others about itself.
struct Member {
  std::string host;     // equal for processes that may share memory
  std::string address;  // that the other ranks can connect to
  int process_id = 0;
  int local_rank = 0;
  int standby_port = 0;  // where it holds a store for when rank 0 does not answer; 0: it does not
};

struct ExchangeOptions {
  std::chrono::milliseconds timeout = {};  // 0: that of the world
  // Called again and again while ranks are missing. What it throws ends the exchange, so that a
  // rank that is known to be gone is not waited for.
  std::function<void()> look = {};
};

// The processes of a job, each of them a rank. Made at the same time by all of them.
class World {
 public:
  // Returns when all ranks are there. Throws WorldError, on all ranks that have joined, if a rank
  // is missing at the end of the timeout, there twice, or started for a world of another size, and
  // if one has called refuse_world().
  explicit World(const WorldOptions& options);

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  int local_rank() const { return options_.local_rank; }
  const Member& member(int rank) const;
  std::vector<int> processes_on_this_host() const;  // their ids, this one too
  Group everyone() const;                           // as one group

  Store& store() { return *store_; }
  std::chrono::milliseconds timeout() const { return options_.timeout; }

  // How to connect to a second store, for when rank 0 does not answer: rank 1 holds one if there
  // are more than two ranks, and they meet at a port. Empty if there is none. May be called when
  // the world is gone.
  Store::Way standby() const;

  // On rank 0, if the ranks meet at a port, the others as they are connected to it.
  const StoreClients& store_clients() const { return store_clients_; }

  // Tells `value` to the ranks of `group`, and returns what each of them has told. To be called by
  // all of them, with the same `topic`, once per topic. Throws WorldError, which names the ranks
  // that are missing at the end of the timeout.
  std::vector<std::string> exchange(const Group& group, const std::string& topic,
                                    const std::string& value, const ExchangeOptions& options = {});
  // What is in the store under `key`. For as long as that does not answer, calls `look` again and
  // again; what it throws ends the wait.
  std::optional<std::string> find(const std::string& key, const std::function<void()>& look) const;

  // Takes back what this rank has told. All of the group must have read it.
  void forget(const std::string& topic);

  // A number that counts the calls with this name, and so is the same on all ranks.
  int next_count(const std::string& name);

 private:
  void join();
  void refuse_if_one_is_gone();
  void refuse(const std::string& reason);

  WorldOptions options_;
  // Shared with threads that ask it, which are left behind if it does not answer.
  std::shared_ptr<Store> store_;
  std::unique_ptr<Store> standby_;  // that this process holds
  std::vector<Member> members_;
  StoreClients store_clients_;
  std::vector<std::pair<std::string, int>> counts_;
};

// For a rank that cannot join: tells those that wait for it why. What keeps it from telling is
// thrown.
void refuse_world(const WorldOptions& options, const std::string& reason);

}  // namespace penstock
