#include "penstock/run/threads/rank_threads.h"

#include <cstddef>
#include <optional>

#include <ATen/Parallel.h>

#include "penstock/run/threads/pinned_thread.h"
#include "penstock/run/threads/process_tuning.h"

namespace penstock {
namespace {

constexpr int kComeHome = -1;

// Waiting for work, and for the others to end theirs, has no deadline: a wait that is over is begun
// again.
template <typename Condition>
void wait_patiently(Doorbell& doorbell, const Condition& is_ready, const WaitPolicy& policy) {
  while (!doorbell.wait(is_ready, policy)) continue;
}

// Gives the calling thread its number of intra-op threads for as long as it works for a rank.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int wanted) : before_(at::get_num_threads()), wanted_(wanted) {
    if (before_ != wanted_) at::set_num_threads(wanted_);
  }
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;
  IntraOpThreads(IntraOpThreads&&) = delete;
  IntraOpThreads& operator=(IntraOpThreads&&) = delete;
  ~IntraOpThreads() {
    if (before_ != wanted_) at::set_num_threads(before_);
  }

 private:
  int before_;
  int wanted_;
};

// By rank; none if there are not enough.
std::vector<int> cores_for(int num_ranks, int first) {
  const std::vector<int> cores = allowed_cores();
  const int end = first + num_ranks;
  if (static_cast<int>(cores.size()) < end) return {};
  return {cores.begin() + first, cores.begin() + end};
}

}  // namespace

RankThreads::RankThreads(int num_ranks, const RankThreadOptions& options) : options_(options) {
  options_.wait.deadline = kLongestDeadline;
  if (num_ranks > 1 || options.shares_cores) use_one_blas_thread();
  if (options_.pins_threads) cores_ = cores_for(num_ranks, options_.first_core);
  // In a process that was forked, libtorch makes its thread pool anew at the first such call, and
  // threads that call meanwhile, as each does with its first operator, find none.
  if (num_ranks > 1) at::set_num_threads(at::get_num_threads());
  for (int rank = 1; rank < num_ranks; ++rank) workers_.push_back(std::make_unique<Worker>());
  try {
    for (int rank = 1; rank < num_ranks; ++rank) {
      workers_[static_cast<std::size_t>(rank - 1)]->thread =
          std::thread([this, rank] { serve(rank); });
    }
  } catch (...) {
    join();
    throw;
  }
}

RankThreads::~RankThreads() {
  join();
}

void RankThreads::join() {
  round_.store(kComeHome);
  for (const auto& worker : workers_) worker->doorbell.ring();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

void RankThreads::run(const std::function<void(int)>& work) {
  const IntraOpThreads intra_op(options_.intra_op_threads);
  const PinnedThread pinned(cores_.empty() ? std::nullopt : std::optional(cores_.front()));
  work_ = &work;
  num_running_.store(static_cast<int>(workers_.size()));
  round_.fetch_add(1);
  for (const auto& worker : workers_) worker->doorbell.ring();
  work(0);
  wait_patiently(
      caller_, [this] { return num_running_.load() == 0; }, options_.wait);
}

void RankThreads::serve(int rank) {
  if (!cores_.empty()) pin_to_core(cores_[static_cast<std::size_t>(rank)]);
  at::set_num_threads(options_.intra_op_threads);
  Doorbell& doorbell = workers_[static_cast<std::size_t>(rank - 1)]->doorbell;
  int round = 0;
  for (;;) {
    wait_patiently(
        doorbell, [&] { return round_.load() != round; }, options_.wait);
    if (round_.load() == kComeHome) return;
    round = round_.load();
    (*work_)(rank);
    if (num_running_.fetch_sub(1) == 1) caller_.ring();
  }
}

}  // namespace penstock
