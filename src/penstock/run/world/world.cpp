#include "penstock/run/world/world.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "penstock/base/assert.h"
#include "penstock/base/seconds.h"
#include "penstock/base/text.h"
#include "penstock/run/libtorch/c10d.h"
#include "penstock/run/world/internal/host.h"
#include "penstock/run/world/internal/keys.h"
#include "penstock/run/world/internal/store_sockets.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<std::optional<std::string>>;

// Of what a rank tells about itself.
constexpr int kMemberFormat = 1;

constexpr const char* kReady = "world/ready";  // the topic of the last thing all wait for

// Holds a second store for when rank 0, which holds the first, does not answer.
constexpr int kStandbyRank = 1;

constexpr auto kAnswerTime = std::chrono::seconds(1);  // of a store that does not hang

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    if (index > 0) text += index + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[index]);
  }
  return text;
}

// A question to the store on a thread of its own. It is left behind if the store does not answer
// as long as anybody waits: libtorch cannot be interrupted there.
template <typename Answer>
class Question {
 public:
  // `ask` gets the store, and a flag that is set when nobody waits any more.
  template <typename Ask>
  Question(const std::shared_ptr<Store>& store, Ask ask) {
    std::packaged_task<Answer()> task(
        [store = store, ask = std::move(ask), is_left = is_left_]() mutable {
          // Is let go of before there is an answer: a server ends where its owner waits for that.
          const std::shared_ptr<Store> asked = std::move(store);
          return ask(*asked, *is_left);
        });
    answer_ = task.get_future();
    std::thread(std::move(task)).detach();
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
  Question(Question&&) = delete;
  Question& operator=(Question&&) = delete;
  ~Question() {
    *is_left_ = true;
    if (answer_.valid()) answer_.wait_for(kLastPatience);
  }

  // Calls `look` again and again until there is an answer.
  Answer wait(const std::function<void()>& look) {
    while (answer_.wait_for(kPause) == std::future_status::timeout) look();
    return answer_.get();
  }

 private:
  static constexpr auto kPause = std::chrono::milliseconds(5);
  static constexpr auto kLastPatience = std::chrono::milliseconds(200);

  std::shared_ptr<std::atomic<bool>> is_left_ = std::make_shared<std::atomic<bool>>(false);
  std::future<Answer> answer_;
};

// What is asked for when ranks tell each other something.
struct Topic {
  std::vector<std::string> keys;  // by rank of the group
  std::size_t own = 0;            // of them
  std::string value;              // under the own one
  std::string refusal;            // ends the wait if it is there; empty: nothing does
  Clock::time_point deadline;
};

struct Collected {
  bool is_complete = false;
  std::string refusal = {};
  Values values = {};
};

// Tells the own value and looks for the others until all are there or the time is up. A value is
// read once: that takes 40 ms on a TCP store of libtorch 1.13, whose server waits for an
// acknowledgement in the middle of it.
Collected tell_and_collect(Store& store, const Topic& topic, const std::atomic<bool>& is_left) {
  constexpr auto kFirstPause = std::chrono::microseconds(200);
  constexpr auto kLongestPause = std::chrono::microseconds(10'000);
  auto pause = kFirstPause;
  store.set(topic.keys[topic.own], topic.value);
  Collected result{.values = Values(topic.keys.size())};
  result.values[topic.own] = topic.value;
  for (;;) {
    if (!topic.refusal.empty()) {
      if (const auto reason = store.find(topic.refusal)) {
        result.refusal = *reason;
        return result;
      }
    }
    result.is_complete = true;
    for (std::size_t index = 0; index < topic.keys.size(); ++index) {
      if (!result.values[index]) result.values[index] = store.find(topic.keys[index]);
      result.is_complete = result.is_complete && result.values[index];
    }
    if (result.is_complete || is_left || Clock::now() >= topic.deadline) return result;
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

Topic topic_of(const World& world, const Group& group, const std::string& name,
               const std::string& value) {
  Topic topic{.keys = {}, .value = value, .refusal = {}, .deadline = {}};
  for (const int rank : group.ranks) {
    if (rank == world.rank()) topic.own = topic.keys.size();
    topic.keys.push_back(key_of(name, rank));
  }
  return topic;
}

// Asks a question that has an answer by the deadline, unless the store hangs. A port that hangs is
// left to libtorch, which notices: ranks that are still to connect end before rank 0 does then.
template <typename Ask>
auto ask_until(Clock::time_point deadline, const std::shared_ptr<Store>& store, const Ask& ask,
               const std::function<void()>& look = {}) {
  const auto end = std::max(deadline, Clock::now() + longest_answer({})) + kAnswerTime;
  Question<std::invoke_result_t<Ask, Store&, const std::atomic<bool>&>> question(store, ask);
  return question.wait([&] {
    if (look) look();
    if (Clock::now() < end) return;
    throw WorldError(kSilentStore);
  });
}

Collected collect(const std::shared_ptr<Store>& store, const Topic& topic,
                  const std::function<void()>& look) {
  return ask_until(
      topic.deadline, store,
      [topic](Store& asked, const std::atomic<bool>& is_left) {
        return tell_and_collect(asked, topic, is_left);
      },
      look);
}

}  // namespace

World::World(const WorldOptions& options)
    : options_(checked(options)), store_(std::make_shared<Store>(options_)) {
  if (rank() == 0 && size() > 1 && options_.store_file.empty()) {
    store_clients_ = StoreClients(options_.master_port);
  }
  join();
}

void World::refuse(const std::string& reason) {
  store_->set(kRefusal, reason);
  // Who has not read it could not do so when this process, which holds it, has ended.
  const auto end = Clock::now() + kAnswerTime;
  while (store_clients_.has_any() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    store_clients_.take_gone();
  }
  throw WorldError(reason);
}

void World::join() {
  const auto deadline = Clock::now() + timeout();
  const auto claim = [key = fmt::format("world/claims/{}", rank())](
                         Store& store, const std::atomic<bool>& /*is_left*/) {
    return store.add(key, 1);
  };
  if (ask_until(deadline, store_, claim) > 1) {
    refuse(fmt::format(
        "two processes say that they are rank {} of {}{}", rank(), size(),
        options_.store_file.empty()
            ? "; each needs a RANK of its own"
            : fmt::format(", or {} is left from an earlier run", quote(options_.store_file))));
  }
  const std::string address = address_of(options_);
  const bool has_others_to_tell = size() > kStandbyRank + 1;
  if (rank() == kStandbyRank && has_others_to_tell && options_.store_file.empty()) {
    try {
      standby_ = store_->open_standby(address);
    } catch (const WorldError&) {
      standby_ = nullptr;  // reports without it say less
    }
  }
  const nlohmann::json self = {{"format", kMemberFormat},
                               {"size", size()},
                               {"host", host_identity()},
                               {"address", address},
                               {"process", getpid()},
                               {"local_rank", local_rank()},
                               {"standby_port", standby_ == nullptr ? 0 : standby_->port()},
                               {"connections", own_ends_towards_port(options_.master_port)}};
  const auto look = [this] {
    try {
      if (options_.look) options_.look();
    } catch (...) {
      // A rank that is gone may have said why.
      const auto give_up = [error = std::current_exception(), end = Clock::now() + kAnswerTime] {
        if (Clock::now() >= end) std::rethrow_exception(error);
      };
      if (const auto reason = find(kRefusal, give_up)) throw WorldError(*reason);
      throw;
    }
    store_clients_.look();
    refuse_if_one_is_gone();
  };
  Values values;
  const auto gather = [&](const std::string& topic, const std::string& value) {
    Topic asked = topic_of(*this, everyone(), topic, value);
    asked.refusal = kRefusal;
    asked.deadline = deadline;
    Collected found = collect(store_, asked, look);
    if (!found.refusal.empty()) throw WorldError(found.refusal);
    values = std::move(found.values);
    if (found.is_complete) return;
    refuse(fmt::format("waited {:.3g} s for {} of {} to join{}", seconds(timeout()),
                       list_of(missing_ranks(everyone(), values)), size(),
                       options_.token.empty() ? "" : " with the same token"));
  };
  std::vector<std::vector<std::string>> connections;
  // A second round, so that nobody goes on while another one refuses.
  gather("world/member", self.dump());
  for (int rank = 0; rank < size(); ++rank) {
    const auto member =
        nlohmann::json::parse(*values[static_cast<std::size_t>(rank)], nullptr, false);
    if (!member.is_object() || member.value("format", 0) != kMemberFormat) {
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
                        .local_rank = member["local_rank"],
                        .standby_port = member.value("standby_port", 0)});
    connections.emplace_back();  // none to itself
    if (rank != this->rank()) connections.back() = member.value("connections", connections.back());
  }
  store_clients_.name(std::move(connections));
  gather(kReady, "");
  store_->close_to_others();
}

void World::refuse_if_one_is_gone() {
  for (const int rank : store_clients_.take_gone()) {
    const std::string problem =
        fmt::format("rank {} (pid {} at {}) has died before all ranks were ready", rank,
                    member(rank).process_id, member(rank).address);
    // What it has said last may be read after its end is seen: that it is ready, or why not.
    const auto end = Clock::now() + kAnswerTime;
    const auto give_up = [&] {
      if (Clock::now() >= end) throw WorldError(problem);
    };
    while (!find(key_of(kReady, rank), give_up)) {
      if (const auto reason = find(kRefusal, give_up)) throw WorldError(*reason);
      if (Clock::now() >= end) refuse(problem);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

void refuse_world(const WorldOptions& options, const std::string& reason) {
  Store(options).set(kRefusal, reason);
}

const Member& World::member(int rank) const {
  PENSTOCK_ASSERT(rank >= 0 && rank < size(), "a world is asked for ranks that it has");
  return members_[static_cast<std::size_t>(rank)];
}

Store::Way World::standby() const {
  for (const Member& holder : members_) {
    if (holder.standby_port == 0) continue;
    return store_->way_to_standby(holder.address, holder.standby_port);
  }
  return {};
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
  Topic asked = topic_of(*this, group, topic, value);
  asked.deadline = Clock::now() + patience;
  Collected found = collect(store_, asked, options.look);
  if (!found.is_complete) {
    throw WorldError(fmt::format("waited {:.3g} s for {}, which did not come to {}",
                                 seconds(patience), list_of(missing_ranks(group, found.values)),
                                 quote(topic)));
  }
  std::vector<std::string> told;
  for (auto& text : found.values) told.push_back(std::move(*text));
  return told;
}

std::optional<std::string> World::find(const std::string& key,
                                       const std::function<void()>& look) const {
  Question<std::optional<std::string>> question(
      store_,
      [key](Store& store, const std::atomic<bool>& /*is_left*/) { return store.find(key); });
  return question.wait(look);
}

void World::forget(const std::string& topic) {
  store_->remove(key_of(topic, rank()));
}

int World::next_count(const std::string& name) {
  for (auto& [known, count] : counts_) {
    if (known == name) return ++count;
  }
  counts_.emplace_back(name, 0);
  return 0;
}

}  // namespace penstock
