#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

// What ranks exchange after their lists.
enum class ExchangeKind : std::uint8_t {
  SharedGradients,  // of parameters that stages of several ranks use
  Values,           // that each rank tells all others
};

// Where a rank stands in such an exchange.
struct ExchangeProgress {
  static constexpr int kNobody = -1;

  ExchangeKind kind = ExchangeKind::SharedGradients;
  int num_messages = 0;     // that it has sent or received
  int partner = kNobody;    // the rank that the next one goes to or comes from
  bool is_sending = false;  // to it

  friend bool operator==(const ExchangeProgress&, const ExchangeProgress&) = default;
};

// How far each rank of this process has got in its list. Written by the rank, read by anyone who
// has to explain a wait.
class ProgressBoard {
 public:
  static constexpr int kUnknown = -1;

  explicit ProgressBoard(int num_ranks) : ranks_(static_cast<std::size_t>(num_ranks)) {}

  // The number of actions of `rank` that are finished in this step; kUnknown of another process.
  int finished(int rank) const { return at(rank).finished.load(std::memory_order_relaxed); }
  void set_finished(int rank, int num_actions) {
    at(rank).finished.store(num_actions, std::memory_order_relaxed);
    move(rank);
  }

  // Whether the rank waits for another one, to go on with the action after those, or with the
  // exchange after the last.
  bool is_waiting(int rank) const { return at(rank).is_waiting.load(std::memory_order_relaxed); }
  void set_waiting(int rank, bool is_waiting) {
    at(rank).is_waiting.store(is_waiting, std::memory_order_relaxed);
  }

  // What is read while the rank goes on may be of two moments.
  ExchangeProgress exchange(int rank) const {
    const Progress& progress = at(rank);
    return {.kind = progress.kind.load(std::memory_order_relaxed),
            .num_messages = progress.num_messages.load(std::memory_order_relaxed),
            .partner = progress.partner.load(std::memory_order_relaxed),
            .is_sending = progress.is_sending.load(std::memory_order_relaxed)};
  }
  void set_exchange(int rank, const ExchangeProgress& exchange) {
    Progress& progress = at(rank);
    progress.kind.store(exchange.kind, std::memory_order_relaxed);
    progress.num_messages.store(exchange.num_messages, std::memory_order_relaxed);
    progress.partner.store(exchange.partner, std::memory_order_relaxed);
    progress.is_sending.store(exchange.is_sending, std::memory_order_relaxed);
    move(rank);
  }

  // Changes whenever one of the ranks gets on.
  std::uint64_t num_moves() const {
    std::uint64_t sum = 0;
    for (const Progress& progress : ranks_) {
      sum += progress.num_moves.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  struct alignas(64) Progress {
    std::atomic<int> finished = kUnknown;
    std::atomic<bool> is_waiting = false;
    std::atomic<ExchangeKind> kind = ExchangeKind::SharedGradients;
    std::atomic<int> num_messages = 0;
    std::atomic<int> partner = ExchangeProgress::kNobody;
    std::atomic<bool> is_sending = false;
    std::atomic<std::uint64_t> num_moves = 0;
  };
  // One thread writes at a time, so that two steps do for adding one.
  void move(int rank) {
    std::atomic<std::uint64_t>& moves = at(rank).num_moves;
    moves.store(moves.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  Progress& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Progress& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Progress> ranks_;
};

}  // namespace penstock
