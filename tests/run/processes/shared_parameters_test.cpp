// A model whose first and last stage use one parameter, over processes: each has a copy of it, and
// the gradients of both uses are exchanged at the end of a step.

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/run/processes/faults.h"
#include "tests/run/processes/training.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Schedules that give the copies to different ranks, or both to rank 0 (a V).
std::vector<TrainingCase> tied_cases(int num_ranks) {
  std::vector<TrainingCase> cases = {{"1F1B", num_ranks, 4}, {"GPipe", num_ranks, 3}};
  if (num_ranks == 2) {
    cases.push_back({"Interleaved1F1B", 2, 4});
    cases.push_back({"ZBVZeroBubble", 2, 4});
  }
  return cases;
}

std::string train_tied(int num_ranks, const std::shared_ptr<RankGroup>& group) {
  std::string lines;
  for (const TrainingCase& shape : tied_cases(num_ranks)) {
    lines += train_whole(whole_gpt(), shape, {.group = group, .num_steps = 3});
  }
  return lines;
}

struct TiedWay {
  int num_ranks;
  TransportKind transport;
};

class TiedOverProcesses : public ::testing::TestWithParam<TiedWay> {};

TEST_P(TiedOverProcesses, TrainLikeThreads) {
  const auto [num_ranks, transport] = GetParam();
  const auto lines = expect_like_threads(
      num_ranks, transport,
      [num_ranks = num_ranks](const auto& group) { return train_tied(num_ranks, group); });
  EXPECT_THAT(lines, Contains(HasSubstr(" gradient embedding.weight ")));
}

INSTANTIATE_TEST_SUITE_P(
    Processes, TiedOverProcesses,
    ::testing::Values(TiedWay{2, TransportKind::Automatic}, TiedWay{3, TransportKind::Automatic},
                      TiedWay{2, TransportKind::Gloo}, TiedWay{3, TransportKind::Gloo}),
    [](const auto& instance) {
      return (instance.param.transport == TransportKind::Gloo ? "Gloo" : "SharedMemory") +
             std::to_string(instance.param.num_ranks);
    });

FaultyRun tied_run(TransportKind transport, std::chrono::seconds deadline) {
  return {.num_ranks = 3,
          .train =
              [](const TrainingOptions& options) {
                return train_whole(whole_gpt(), {"1F1B", 3, 3}, options);
              },
          .transport = transport,
          .deadline = deadline,
          .bound_s = static_cast<double>(deadline.count()) + 2};
}

class TiedFaultInjection : public ::testing::TestWithParam<TransportKind> {};

// The copies are on ranks 0 and 2, which exchange gradients when their lists are done.
TEST_P(TiedFaultInjection, NamesTheRankThatWasKilledInTheExchange) {
  FaultyRun run = tied_run(GetParam(), std::chrono::seconds(20));
  run.bound_s = 2;
  expect_all_named("killed in the exchange",
                   inject(run, {{0, Fault::kAfterTheList}, {2, Fault::kAfterTheList}}));
}

TEST_P(TiedFaultInjection, NamesTheRankThatWasStoppedInTheExchangeAtTheDeadline) {
  const Tally tally =
      inject(tied_run(GetParam(), std::chrono::seconds(1)), {{2, Fault::kAfterTheList, SIGSTOP}});
  expect_all_named("stopped in the exchange", tally);
  EXPECT_THAT(tally.text, HasSubstr("to send gradients of parameters that both use, which does "
                                    "not answer"));
}

INSTANTIATE_TEST_SUITE_P(Processes, TiedFaultInjection,
                         ::testing::Values(TransportKind::Automatic, TransportKind::Gloo),
                         [](const auto& instance) {
                           return instance.param == TransportKind::Gloo ? "Gloo" : "SharedMemory";
                         });

}  // namespace
}  // namespace penstock
