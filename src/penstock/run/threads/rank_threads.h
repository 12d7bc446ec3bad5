#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/run/threads/doorbell.h"

namespace penstock {

struct RankThreadOptions {
  WaitPolicy wait;           // for work and for its end; the deadline does not matter
  int intra_op_threads = 1;  // of each rank
  // With ranks of other processes; those of this one always do if there are several.
  bool shares_cores = false;
  // Each rank to a core of its own, the calling thread while it works; unless ranks outnumber
  // cores.
  bool pins_threads = false;
  int first_core = 0;  // for rank 0, of those that this process may use
};

// Does work on all ranks at once: rank 0 on the thread that calls, each other rank on a thread of
// its own, which lives as long as this object. With one rank there is no other thread at all.
class RankThreads {
 public:
  RankThreads(int num_ranks, const RankThreadOptions& options);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  RankThreads(RankThreads&&) = delete;
  RankThreads& operator=(RankThreads&&) = delete;
  ~RankThreads();

  // Calls `work` once per rank and returns when all calls have, however long that takes: a thread
  // cannot be ended, and works with what belongs to the caller. `work` must not throw.
  void run(const std::function<void(int rank)>& work);

 private:
  struct Worker {
    Doorbell doorbell;
    std::thread thread;
  };
  void serve(int rank);
  void join();

  RankThreadOptions options_;
  std::vector<int> cores_;  // by rank, to stay on; none if threads are not pinned
  std::vector<std::unique_ptr<Worker>> workers_;  // of rank 1 and up
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<int> round_ = 0;  // counts the calls of run(); negative: come home
  std::atomic<int> num_running_ = 0;
  Doorbell caller_;
};

}  // namespace penstock
