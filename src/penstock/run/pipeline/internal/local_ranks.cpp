#include "penstock/run/pipeline/internal/local_ranks.h"

#include <algorithm>
#include <utility>

#include "penstock/plan/schedule/placement.h"
#include "penstock/run/pipeline/internal/stage_list.h"

namespace penstock {

LocalRanks::LocalRanks(std::vector<int> ranks, Fabric& fabric, ReplicaLinks& replicas,
                       const RankThreadOptions& options)
    : ranks_(std::move(ranks)),
      fabric_(fabric),
      replicas_(replicas),
      threads_(static_cast<int>(ranks_.size()), options),
      errors_(ranks_.size()) {}

LocalRanks::Executors LocalRanks::make_executors(const Schedule& program, const StageList& stages,
                                                 const ExecutorOptions& options) const {
  const Placement placement = placement_of(program, extent_of(program).num_stages);
  Executors executors;
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    const int rank = ranks_[index];
    executors.push_back(std::make_unique<Executor>(
        rank, program, stages_of_rank(stages, placement, rank), fabric_.endpoint(rank),
        fabric_.progress(), replicas_.link(index), options));
  }
  return executors;
}

// A rank may have learned from its replicas that it is to stop, and the others have not.
void LocalRanks::stop() noexcept {
  fabric_.endpoint(ranks_.front()).stop();
  replicas_.stop();
}

void LocalRanks::run(const std::function<void(int)>& work) {
  first_failure_.store(kNobody);
  was_stopped_.store(false);
  threads_.run([&](int index) {
    try {
      work(index);
    } catch (const StoppedError&) {
      was_stopped_.store(true);
      stop();
    } catch (...) {
      errors_[static_cast<std::size_t>(index)] = std::current_exception();
      int nobody = kNobody;
      first_failure_.compare_exchange_strong(nobody, index);
      stop();
    }
  });
  const int failed = first_failure_.load();
  if (failed != kNobody) {
    const std::exception_ptr error = errors_[static_cast<std::size_t>(failed)];
    std::fill(errors_.begin(), errors_.end(), nullptr);
    std::rethrow_exception(error);
  }
  if (was_stopped_.load()) throw StoppedError();
}

}  // namespace penstock
