#include "penstock/run/world/world.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "penstock/base/assert.h"
#include "penstock/base/seconds.h"
#include "penstock/base/text.h"
#include "penstock/run/world/internal/host.h"
#include "penstock/run/world/internal/keys.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<std::optional<std::string>>;

// Of what a rank tells about itself.
constexpr int kFormat = 1;

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    if (index > 0) text += index + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[index]);
  }
  return text;
}

// Looks for the values that are not known, until all are (true) or the time is up (false). `look`
// is called in every round. A value is read once: that takes 40 ms on a TCP store of libtorch 1.13,
// whose server waits for an acknowledgement in the middle of it.
bool collect(Store& store, const std::vector<std::string>& keys, Clock::time_point deadline,
             const std::function<void()>& look, Values& values) {
  constexpr auto kFirstPause = std::chrono::microseconds(200);
  constexpr auto kLongestPause = std::chrono::microseconds(10'000);
  auto pause = kFirstPause;
  for (;;) {
    look();
    bool is_complete = true;
    for (std::size_t index = 0; index < keys.size(); ++index) {
      if (!values[index]) values[index] = store.find(keys[index]);
      is_complete = is_complete && values[index];
    }
    if (is_complete) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

// The ranks of `group` whose value is missing.
std::vector<int> missing_ranks(const Group& group, const Values& values) {
  std::vector<int> missing;
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (!values[index]) missing.push_back(group.ranks[index]);
  }
  return missing;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

WorldOptions checked(const WorldOptions& options) {
  if (options.size < 1) {
    throw ArgumentError(fmt::format("a world has at least 1 rank, not {}", options.size));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    throw ArgumentError(fmt::format("there is no rank {} in a world of {}", options.rank,
                                    counted(options.size, "rank", "ranks")));
  }
  if (options.size > 1 && options.store_file.empty() && options.token.empty() &&
      !is_loopback(options.master_address)) {
    throw ArgumentError(
        fmt::format("ranks that meet at {} need a token, so that nobody else can join; set "
                    "PENSTOCK_TOKEN to the "
                    "same random text for all of them",
                    options.master_address));
  }
  return options;
}

std::string address_of(const WorldOptions& options) {
  if (!options.address.empty()) return options.address;
  if (!options.store_file.empty() || options.size == 1) return "127.0.0.1";
  return local_address_towards({options.master_address, options.master_port});
}

std::string key_of(const std::string& topic, int rank) {
  return fmt::format("{}/{}", topic, rank);
}

// Tells the own value, and collects those of the others in `group`.
bool tell_and_collect(World& world, const Group& group, const std::string& topic,
                      const std::string& value, Clock::time_point deadline,
                      const std::function<void()>& look, Values& values) {
  world.store().set(key_of(topic, world.rank()), value);
  values.assign(group.ranks.size(), std::nullopt);
  std::vector<std::string> keys;
  for (std::size_t index = 0; index < group.ranks.size(); ++index) {
    keys.push_back(key_of(topic, group.ranks[index]));
    if (group.ranks[index] == world.rank()) values[index] = value;
  }
  return collect(world.store(), keys, deadline, look, values);
}

}  // namespace

World::World(const WorldOptions& options) : options_(checked(options)), store_(options_) {
  join();
}

void World::refuse(const std::string& reason) {
  store_.set(kRefusal, reason);
  throw WorldError(reason);
}

void World::join() {
  if (store_.add(fmt::format("world/claims/{}", rank()), 1) > 1) {
    refuse(fmt::format(
        "two processes say that they are rank {} of {}{}", rank(), size(),
        options_.store_file.empty()
            ? "; each needs a RANK of its own"
            : fmt::format(", or {} is left from an earlier run", quote(options_.store_file))));
  }
  const nlohmann::json self = {{"format", kFormat},       {"size", size()},
                               {"host", host_identity()}, {"address", address_of(options_)},
                               {"process", getpid()},     {"local_rank", local_rank()}};
  const auto deadline = Clock::now() + timeout();
  const auto find_refusal = [this] {
    if (const auto reason = store_.find(kRefusal)) throw WorldError(*reason);
  };
  const auto look = [&] {
    find_refusal();
    try {
      if (options_.look) options_.look();
    } catch (...) {
      find_refusal();  // a rank that is gone may have said why
      throw;
    }
  };
  Values values;
  const auto gather = [&](const std::string& topic, const std::string& value) {
    if (tell_and_collect(*this, everyone(), topic, value, deadline, look, values)) return;
    refuse(fmt::format("waited {:.3g} s for {} of {} to join{}", seconds(timeout()),
                       list_of(missing_ranks(everyone(), values)), size(),
                       options_.token.empty() ? "" : " with the same token"));
  };
  // A second round, so that nobody goes on while another one refuses.
  gather("world/member", self.dump());
  for (int rank = 0; rank < size(); ++rank) {
    const auto member =
        nlohmann::json::parse(*values[static_cast<std::size_t>(rank)], nullptr, false);
    if (!member.is_object() || member.value("format", 0) != kFormat) {
      refuse(
          fmt::format("rank {} runs another version of Penstock than rank {}", rank, this->rank()));
    }
    if (const int other = member["size"]; other != size()) {
      refuse(fmt::format("rank {} was started for a world of {}, rank {} for one of {}", rank,
                         counted(other, "rank", "ranks"), this->rank(), size()));
    }
    members_.push_back({.host = member["host"],
                        .address = member["address"],
                        .process_id = member["process"],
                        .local_rank = member["local_rank"]});
  }
  gather("world/ready", "");
  store_.close_to_others();
}

void refuse_world(const WorldOptions& options, const std::string& reason) {
  Store(options).set(kRefusal, reason);
}

const Member& World::member(int rank) const {
  PENSTOCK_ASSERT(rank >= 0 && rank < size(), "a world is asked for ranks that it has");
  return members_[static_cast<std::size_t>(rank)];
}

std::vector<int> World::processes_on_this_host() const {
  std::vector<int> here;
  for (const Member& other : members_) {
    if (other.host == member(rank()).host) here.push_back(other.process_id);
  }
  return here;
}

Group World::everyone() const {
  Group group{.name = "world", .ranks = {}};
  for (int rank = 0; rank < size(); ++rank) group.ranks.push_back(rank);
  return group;
}

std::vector<std::string> World::exchange(const Group& group, const std::string& topic,
                                         const std::string& value, const ExchangeOptions& options) {
  const auto patience = options.timeout.count() > 0 ? options.timeout : timeout();
  const auto look = [&options] {
    if (options.look) options.look();
  };
  Values values;
  if (!tell_and_collect(*this, group, topic, value, Clock::now() + patience, look, values)) {
    throw WorldError(fmt::format("waited {:.3g} s for {}, which did not come to {}",
                                 seconds(patience), list_of(missing_ranks(group, values)),
                                 quote(topic)));
  }
  std::vector<std::string> told;
  for (auto& text : values) told.push_back(std::move(*text));
  return told;
}

void World::forget(const std::string& topic) {
  store_.remove(key_of(topic, rank()));
}

int World::next_count(const std::string& name) {
  for (auto& [known, count] : counts_) {
    if (known == name) return ++count;
  }
  counts_.emplace_back(name, 0);
  return 0;
}

}  // namespace penstock
