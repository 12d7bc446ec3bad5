#include "penstock/run/threads/process_tuning.h"

#include <cstdint>

#include <ATen/Functions.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "penstock/run/threads/rank_threads.h"

namespace penstock {
namespace {

// How often this thread had to ask the system for memory that a new tensor is written to.
long page_faults_of_a_tensor() {
  constexpr std::int64_t kBytes = std::int64_t{40} << 20U;  // malloc would map it on its own
  const auto count = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  const long before = count();
  at::ones({kBytes}, at::kByte);
  return count() - before;
}

TEST(KeepFreedMemory, GivesItToTheNextTensor) {
  // Aligned memory fits the next tensor of the same size only when glibc before 2.38 has put the
  // pieces that it cuts off back together.
  constexpr int kWarmUpTensors = 16;
  keep_freed_memory();
  for (int tensor = 0; tensor < kWarmUpTensors; ++tensor) page_faults_of_a_tensor();
  // New memory takes a fault for every page, of which the largest have 2 MB.
  EXPECT_LT(page_faults_of_a_tensor(), 10);
}

TEST(RankThreads, SetOpenBlasToOneThreadIfThereAreSeveral) {
  using GetNumThreads = int (*)();
  const auto num_blas_threads =
      reinterpret_cast<GetNumThreads>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  if (num_blas_threads == nullptr) GTEST_SKIP() << "another BLAS is in use";
  const RankThreads threads(2, {});
  EXPECT_EQ(num_blas_threads(), 1);
}

}  // namespace
}  // namespace penstock
