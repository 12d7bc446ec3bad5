#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "penstock/base/error.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace penstock {

// Ranks that do not find each other, or do not agree on who they are.
class WorldError : public Error {
 public:
  using Error::Error;
};

struct WorldOptions;

// Keys with values that all ranks of a world see; libtorch's c10d::Store. Safe from several
// threads. Throws WorldError if the process that holds the values is gone.
class Store {
 public:
  // Where the ranks of `options` meet. Does not wait for them, except for rank 0 to listen. If they
  // meet at a port and have no token, rank 0 makes one and leaves it where its user alone, on this
  // host, finds it.
  explicit Store(const WorldOptions& options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  Store(Store&&) = delete;
  Store& operator=(Store&&) = delete;
  ~Store();

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> find(const std::string& key);
  void remove(const std::string& key);

  // Adds to the number under `key`, which starts at 0, and returns the sum.
  std::int64_t add(const std::string& key, std::int64_t amount);

  // All ranks are there: takes the token back that was left for them.
  void close_to_others();

  // Another connection to the same values, for a thread that must not wait for others.
  std::unique_ptr<Store> connect_again() const;

  // A second place for values of the job, which this process holds, at a port that is free.
  // `address` is how the others reach this host.
  std::unique_ptr<Store> open_standby(const std::string& address) const;
  int port() const;

  // How to connect to a standby. May be called when this store is gone; throws WorldError if that
  // one is, too.
  using Way = std::function<std::unique_ptr<Store>()>;
  Way way_to_standby(const std::string& address, int port) const;

  // For what libtorch connects through a store. Its blocking calls keep other threads waiting.
  c10d::Store& native();

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
