#include "penstock/run/transport/open_transport.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"
#include "penstock/run/threads/shared_cores.h"
#include "penstock/run/threads/wait_policy.h"
#include "penstock/run/transport/c10d/internal/c10d_transport.h"
#include "penstock/run/transport/shared_memory/internal/shared_memory_transport.h"

namespace penstock {
namespace {

// One transport to some ranks, another one to the rest.
class MixedTransport final : public Transport {
 public:
  MixedTransport(std::unique_ptr<Transport> near, std::unique_ptr<Transport> far,
                 std::vector<bool> is_near)
      : near_(std::move(near)), far_(std::move(far)), is_near_(std::move(is_near)) {}

  void begin_step(std::int64_t number) override {
    near_->begin_step(number);
    far_->begin_step(number);
  }
  void send(int to_rank, MessageKey key, Message& message) override {
    way_to(to_rank).send(to_rank, key, message);
  }
  void expect(int from_rank, MessageKey key) override { way_to(from_rank).expect(from_rank, key); }
  void receive(int from_rank, MessageKey key, Message& message) override {
    way_to(from_rank).receive(from_rank, key, message);
  }
  void stop() noexcept override {
    near_->stop();
    far_->stop();
  }

 private:
  Transport& way_to(int rank) const {
    return is_near_[static_cast<std::size_t>(rank)] ? *near_ : *far_;
  }

  std::unique_ptr<Transport> near_;
  std::unique_ptr<Transport> far_;
  std::vector<bool> is_near_;  // by rank
};

// What each rank tells the others of its group.
struct Introduction {
  std::uint64_t fingerprint = 0;
  Extent extent;
  TransportKind kind = TransportKind::Automatic;
  bool makes_backend = false;  // of its own
  std::string invitation;      // to its shared memory; empty if there is none
  std::string problem;         // why there is none
};

std::string write(const Introduction& introduction) {
  return nlohmann::json{{"fingerprint", introduction.fingerprint},
                        {"stages", introduction.extent.num_stages},
                        {"microbatches", introduction.extent.num_microbatches},
                        {"kind", static_cast<int>(introduction.kind)},
                        {"makes_backend", introduction.makes_backend},
                        {"invitation", introduction.invitation},
                        {"problem", introduction.problem}}
      .dump();
}

Introduction parse(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Introduction introduction;
  introduction.fingerprint = json["fingerprint"];
  introduction.extent = {.num_stages = json["stages"], .num_microbatches = json["microbatches"]};
  introduction.kind = static_cast<TransportKind>(json["kind"].get<int>());
  introduction.makes_backend = json["makes_backend"];
  introduction.invitation = json["invitation"];
  introduction.problem = json["problem"];
  return introduction;
}

// Builds the transport of one rank, in the rounds that the ranks of the group take together.
class Opening {
 public:
  Opening(World& world, const Group& group, const ProcessTransportOptions& options)
      : world_(world),
        group_(group),
        options_(options),
        rank_(group.rank_of(world.rank())),
        topic_(fmt::format("transport/{}/{}", group.name, world.next_count(group.name))) {
    if (rank_ == Group::kNotAMember) {
      throw ArgumentError(fmt::format("rank {} of the world is not in the group {}", world.rank(),
                                      quote(group.name)));
    }
    if (options.kind == TransportKind::OwnBackend && !options.make_backend) {
      throw ArgumentError(
          "a transport over a backend of the program's own needs a function that makes it: set "
          "make_backend");
    }
    wait_ = wait_policy_for(shared_cores(world.processes_on_this_host()).num_processes,
                            options.deadline);
    if (options.spin) wait_.spin = *options.spin;
  }

  std::unique_ptr<Transport> run() {
    try {
      introduce();
      connect_near();
    } catch (const WorldError& error) {
      throw TransportError(error.what());
    }
    const bool all_near =
        std::all_of(reached_.begin(), reached_.end(), [](bool is_near) { return is_near; });
    // Who is alone has reached all others, also without shared memory.
    if (all_near && shared_memory_ != nullptr) return std::move(shared_memory_);
    const C10dTransportOptions far_options{
        .rank = rank_,
        .num_ranks = group_.size(),
        .extent = options_.extent,
        .fingerprint = options_.fingerprint,
        .deadline = options_.deadline,
        .last_wait = options_.last_wait.count() > 0 ? options_.last_wait : options_.deadline,
        .name = topic_,
        .address = world_.member(world_.rank()).address,
        .connect_timeout =
            options_.connect_timeout.count() > 0 ? options_.connect_timeout : world_.timeout(),
        .look = options_.look};
    auto far = options_.make_backend && options_.kind != TransportKind::Gloo
                   ? make_backend_transport(world_.store(), far_options, options_.make_backend)
                   : make_gloo_transport(world_.store(), far_options);
    if (shared_memory_ == nullptr) return far;
    return std::make_unique<MixedTransport>(std::move(shared_memory_), std::move(far),
                                            near_from_here());
  }

 private:
  std::vector<std::string> exchange(const char* what, const std::string& value) {
    return world_.exchange(group_, fmt::format("{}/{}", topic_, what), value,
                           {.timeout = options_.connect_timeout, .look = options_.look});
  }

  bool is_far_only() const {
    return options_.kind == TransportKind::Gloo || options_.kind == TransportKind::OwnBackend;
  }

  void introduce() {
    Introduction self{.fingerprint = options_.fingerprint,
                      .extent = options_.extent,
                      .kind = options_.kind,
                      .makes_backend = static_cast<bool>(options_.make_backend),
                      .invitation = "",
                      .problem = ""};
    if (!is_far_only()) {
      try {
        shared_memory_ = std::make_unique<SharedMemoryTransport>(
            SharedMemoryOptions{.rank = rank_,
                                .num_ranks = group_.size(),
                                .extent = options_.extent,
                                .fingerprint = options_.fingerprint,
                                .wait = wait_});
        self.invitation = shared_memory_->invitation();
      } catch (const TransportError& error) {
        self.problem = error.what();
      }
    }
    for (const std::string& text : exchange("ranks", write(self))) {
      introductions_.push_back(parse(text));
    }
    for (int peer = 0; peer < group_.size(); ++peer) require_same_program(self, peer);
  }

  void require_same_program(const Introduction& self, int peer) const {
    const Introduction& other = introductions_[static_cast<std::size_t>(peer)];
    if (other.extent.num_stages != self.extent.num_stages ||
        other.extent.num_microbatches != self.extent.num_microbatches) {
      throw TransportError(fmt::format(
          "rank {} runs a program of {} stages and {} microbatches, rank {} one of {} and {}", peer,
          other.extent.num_stages, other.extent.num_microbatches, rank_, self.extent.num_stages,
          self.extent.num_microbatches));
    }
    if (other.fingerprint != self.fingerprint) {
      throw TransportError(fmt::format("rank {} runs another program than rank {}", peer, rank_));
    }
    if (other.kind != self.kind || other.makes_backend != self.makes_backend) {
      throw TransportError(fmt::format(
          "rank {} was told to use another kind of transport than rank {}", peer, rank_));
    }
  }

  // Connects with the ranks of this host, and finds out which pairs of ranks could.
  void connect_near() {
    std::vector<std::string> problems;  // by rank; empty where the connection is made
    problems.reserve(static_cast<std::size_t>(group_.size()));
    for (int peer = 0; peer < group_.size(); ++peer) {
      problems.push_back(peer == rank_ ? "" : try_to_connect(peer));
    }
    const auto told = exchange("reached", nlohmann::json(problems).dump());
    for (int first = 0; first < group_.size(); ++first) {
      const auto reached = nlohmann::json::parse(told[static_cast<std::size_t>(first)]);
      for (int second = 0; second < group_.size(); ++second) {
        const std::string problem = reached[static_cast<std::size_t>(second)];
        reached_.push_back(problem.empty());
        if (problem.empty() || options_.kind != TransportKind::SharedMemory) continue;
        throw TransportError(fmt::format("ranks {} and {} cannot share memory: {}; use Gloo", first,
                                         second, problem));
      }
    }
    const std::vector<bool> near = near_from_here();
    if (std::count(near.begin(), near.end(), true) == 1 && group_.size() > 1) {
      shared_memory_.reset();  // for itself alone
    }
  }

  std::string try_to_connect(int peer) {
    const Introduction& other = introductions_[static_cast<std::size_t>(peer)];
    const auto host_of = [&](int rank) {
      return world_.member(group_.ranks[static_cast<std::size_t>(rank)]).host;
    };
    if (is_far_only()) return "they were told to use a backend of c10d";
    if (host_of(peer) != host_of(rank_)) return "they are on different hosts";
    if (!other.problem.empty()) return other.problem;
    if (shared_memory_ == nullptr) return "one of them has none";
    try {
      shared_memory_->connect(peer, other.invitation);
      return {};
    } catch (const TransportError& error) {
      return error.what();
    }
  }

  // A pair shares memory only if both have reached the other.
  std::vector<bool> near_from_here() const {
    const auto size = static_cast<std::size_t>(group_.size());
    const auto self = static_cast<std::size_t>(rank_);
    std::vector<bool> near;
    for (std::size_t peer = 0; peer < size; ++peer) {
      near.push_back(reached_[self * size + peer] && reached_[peer * size + self]);
    }
    return near;
  }

  World& world_;
  const Group& group_;
  const ProcessTransportOptions& options_;
  int rank_;
  std::string topic_;
  WaitPolicy wait_;
  std::unique_ptr<SharedMemoryTransport> shared_memory_;
  std::vector<Introduction> introductions_;  // by rank
  std::vector<bool> reached_;                // from each rank to each, row by row
};

}  // namespace

std::unique_ptr<Transport> open_transport(World& world, const Group& group,
                                          const ProcessTransportOptions& options) {
  return Opening(world, group, options).run();
}

}  // namespace penstock
