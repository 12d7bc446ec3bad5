#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/torch.h>
#include <unistd.h>

#include "tests/run/support/message_of.h"
#include "tests/run/support/rank_processes.h"
#include "tests/run/support/store_backend.h"
#include "tests/run/transport/transport_ways.h"

// What transports between processes must do in addition: find each other, notice ranks that differ
// or are gone, and use memory again.
namespace penstock {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ProcessTransportTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (GetParam() == TransportKind::Gloo && !has_gloo()) GTEST_SKIP() << "built without Gloo";
  }
  static ProcessTransportOptions options() {
    return {.kind = GetParam(),
            .extent = kExtent,
            .fingerprint = 7,
            .make_backend = store_backend(),
            .deadline = std::chrono::minutes(1)};
  }
  static void run(const Ranks& ranks, std::chrono::nanoseconds deadline = std::chrono::minutes(1)) {
    switch (GetParam()) {
      case TransportKind::Gloo:
        return run_over_gloo(ranks, deadline);
      case TransportKind::OwnBackend:
        return run_over_own_backend(ranks, deadline);
      default:
        return run_over_shared_memory(ranks, deadline);
    }
  }
};

TEST_P(ProcessTransportTest, RefusesAMessageOfAnotherStep) {
  run({[](Transport& transport) {
         transport.begin_step(4);
         Message message = {1};
         transport.send(1, activation(1, 2), message);
       },
       [](Transport& transport) {
         transport.begin_step(5);
         Message message;
         EXPECT_EQ(
             message_of([&] { transport.receive(0, activation(1, 2), message); }),
             "rank 0 sent the activations of microbatch 2 for stage 1 in step 4, but expected "
             "were the activations of microbatch 2 for stage 1 in step 5; all ranks must run "
             "the same steps");
         EXPECT_TRUE(message.empty());
       }});
}

TEST_P(ProcessTransportTest, NoticesRanksWithAnotherProgram) {
  run_in_forks(3, [](const WorldOptions& world_options) {
    World world(world_options);
    ProcessTransportOptions changed = options();
    if (world.rank() == 1) changed.fingerprint = 8;
    EXPECT_THAT(
        message_of([&] { open_transport(world, world.everyone(), changed); }),
        AnyOf("rank 1 runs another program than rank 0", "rank 1 runs another program than rank 2",
              "rank 0 runs another program than rank 1"));
  });
}

TEST_P(ProcessTransportTest, NoticesRanksWithAnotherNumberOfMicrobatches) {
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    ProcessTransportOptions changed = options();
    if (world.rank() == 1) changed.extent.num_microbatches = 5;
    EXPECT_THAT(
        message_of([&] { open_transport(world, world.everyone(), changed); }),
        AnyOf("rank 1 runs a program of 4 stages and 5 microbatches, rank 0 one of 4 and 3",
              "rank 0 runs a program of 4 stages and 3 microbatches, rank 1 one of 4 and 5"));
  });
}

TEST_P(ProcessTransportTest, NamesTheRankThatDoesNotComeInTime) {
  run_in_forks(3, [](const WorldOptions& world_options) {
    World world(world_options);
    ProcessTransportOptions impatient = options();
    impatient.connect_timeout = std::chrono::milliseconds(200);
    if (world.rank() != 2) {
      EXPECT_THAT(message_of([&] { open_transport(world, world.everyone(), impatient); }),
                  StartsWith("waited 0.2 s for rank 2, which did not come to \"transport/"));
    }
    world.exchange(world.everyone(), "tried", "");
  });
}

TEST_P(ProcessTransportTest, EndsTheOpeningWhenItIsToldTo) {
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    ProcessTransportOptions warned = options();
    warned.look = [] { throw TransportError("rank 1 has died"); };
    if (world.rank() == 0) {
      EXPECT_EQ(message_of([&] { open_transport(world, world.everyone(), warned); }),
                "rank 1 has died");
    }
    world.exchange(world.everyone(), "tried", "");
  });
}

TEST_P(ProcessTransportTest, NamesTheRankThatHasExited) {
  if (GetParam() == TransportKind::OwnBackend) GTEST_SKIP() << "this one does not notice";
  run({[](Transport& transport) {
         Message message;
         transport.receive(1, gradient(0, 0), message);
         _exit(0);
       },
       [](Transport& transport) {
         Message message;
         transport.send(0, gradient(0, 0), message);
         EXPECT_THAT(message_of([&] { transport.receive(0, activation(1, 1), message); }),
                     AnyOf(StartsWith("lost the connection to rank 0, and with it the way for the "
                                      "activations of microbatch 1 for stage 1: "),
                           StartsWith("rank 0 has exited, and with it the way for the activations "
                                      "of microbatch 1 for stage 1")));
       }},
      std::chrono::hours(1));
}

// With Gloo alone, a send that is forgotten before it was received is taken back.
TEST_P(ProcessTransportTest, DeliversWhatARankHasSentBeforeItEnds) {
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    std::unique_ptr<Transport> transport = open_transport(world, world.everyone(), options());
    Message message = {torch::ones({1000})};
    if (world.rank() == 0) {
      transport->send(1, activation(1, 1), message);
      world.store().set("sent", "");
      transport.reset();
    } else {
      while (!world.store().find("sent")) {
      }
      transport->receive(0, activation(1, 1), message);
      EXPECT_TRUE(torch::equal(message.front().toTensor(), torch::ones({1000})));
    }
  });
}

TEST_P(ProcessTransportTest, GoesOnAfterADeadline) {
  run({[](Transport& transport) {
         receive_patiently(transport, 1, gradient(0, 0));
         Message message = {torch::ones({3})};
         transport.send(1, activation(1, 0), message);
       },
       [](Transport& transport) {
         Message message;
         EXPECT_EQ(message_of([&] { transport.receive(0, activation(1, 0), message); }),
                   "waited 0.03 s for the activations of microbatch 0 from rank 0");
         transport.send(0, gradient(0, 0), message);
         message = receive_patiently(transport, 0, activation(1, 0));
         EXPECT_TRUE(torch::equal(message.front().toTensor(), torch::ones({3})));
       }},
      std::chrono::milliseconds(30));
}

TEST_P(ProcessTransportTest, UsesItsMemoryAgain) {
  constexpr int kSteps = 200;
  run({[](Transport& transport) {
         Message message;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           message = {torch::zeros({5000 + step % 7})};
           transport.send(1, activation(1, 0), message);
           transport.receive(1, gradient(0, 0), message);
         }
       },
       [](Transport& transport) {
         std::set<void*> places;
         Message message;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           transport.receive(0, activation(1, 0), message);
           places.insert(message.front().toTensor().data_ptr());
           message.clear();
           transport.send(0, gradient(0, 0), message);
         }
         EXPECT_LE(places.size(), 3U);
       }});
}

TEST_P(ProcessTransportTest, DeliversToWhoKeepsEverything) {
  constexpr int kSteps = 600;
  run({[](Transport& transport) {
         Message message;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           message = {torch::full({2}, step)};
           transport.send(1, activation(1, 0), message);
         }
         transport.receive(1, gradient(0, 0), message);
       },
       [](Transport& transport) {
         std::vector<torch::Tensor> kept;
         Message message;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           transport.receive(0, activation(1, 0), message);
           kept.push_back(message.front().toTensor());
         }
         for (int step = 0; step < kSteps; ++step) {
           EXPECT_TRUE(torch::equal(kept[static_cast<std::size_t>(step)], torch::full({2}, step)));
         }
         transport.send(0, gradient(0, 0), message);
       }});
}

// Unlike activations of a training step, these may change before they have arrived.
TEST_P(ProcessTransportTest, SendsParametersAndBuffersAsTheyWereThen) {
  constexpr int kSteps = 3;
  constexpr std::int64_t kLarge = 1 << 20;
  run({[](Transport& transport) {
         const torch::Tensor parameter = torch::zeros({kLarge}).requires_grad_();
         const torch::Tensor buffer = torch::zeros({2 * kLarge});
         Message message;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           message = {parameter, buffer};
           transport.send(1, activation(1, 0), message);
           {
             const torch::NoGradGuard no_grad;
             parameter.add_(1);
             buffer.add_(1);
           }
           message.clear();
           transport.send(1, activation(1, 1), message);
           transport.receive(1, gradient(0, 0), message);
         }
       },
       [](Transport& transport) {
         Message message;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           transport.receive(0, activation(1, 1), message);  // it has changed by now
           transport.receive(0, activation(1, 0), message);
           for (const c10::IValue& value : message) {
             EXPECT_TRUE((value.toTensor() == step).all().item<bool>());
           }
           message.clear();
           transport.send(0, gradient(0, 0), message);
         }
       }});
}

TEST_P(ProcessTransportTest, LeavesTensorsBehindThatOutliveIt) {
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    Message message;
    {
      const std::unique_ptr<Transport> transport =
          open_transport(world, world.everyone(), options());
      if (world.rank() == 0) {
        message = {torch::arange(100)};
        transport->send(1, activation(1, 0), message);
      } else {
        transport->receive(0, activation(1, 0), message);
      }
    }
    if (world.rank() == 0) return;
    EXPECT_TRUE(torch::equal(message.front().toTensor(), torch::arange(100)));
  });
}

TEST_P(ProcessTransportTest, OpensAgainAfterAStop) {
  run_in_forks(2, [](const WorldOptions& world_options) {
    World world(world_options);
    for (int round = 0; round < 3; ++round) {
      const std::unique_ptr<Transport> transport =
          open_transport(world, world.everyone(), options());
      Message message = {round};
      const int peer = 1 - world.rank();
      transport->send(peer, activation(peer, 0), message);
      transport->receive(peer, activation(world.rank(), 0), message);
      EXPECT_EQ(message.front().toInt(), round);
      // Left over for nobody.
      transport->send(peer, activation(peer, 1), message);
      world.exchange(world.everyone(), "round " + std::to_string(round), "");
      transport->stop();
      EXPECT_THROW(transport->begin_step(1), StoppedError);
    }
  });
}

TEST_P(ProcessTransportTest, ConnectsTheRanksOfAMesh) {
  run_in_forks(4, [](const WorldOptions& world_options) {
    World world(world_options);
    const Mesh mesh(world.size(), {.pipeline = 2, .data = 2});
    for (const Group& group : {mesh.pipeline_of(world.rank()), mesh.data_group_of(world.rank())}) {
      const std::unique_ptr<Transport> transport = open_transport(world, group, options());
      const int rank = group.rank_of(world.rank());
      const int peer = 1 - rank;
      Message message = {world.rank()};
      transport->send(peer, activation(peer, 0), message);
      transport->receive(peer, activation(rank, 0), message);
      EXPECT_EQ(message.front().toInt(), group.ranks[static_cast<std::size_t>(peer)]);
    }
  });
}

TEST_P(ProcessTransportTest, SaysWhichValueCannotTravel) {
  run({[](Transport& transport) {
         Message message = {torch::ones({1}), torch::eye(2).to_sparse()};
         EXPECT_THAT(message_of([&] { transport.send(1, activation(1, 0), message); }),
                     HasSubstr("value 1 of the message is a tensor of SparseCPUFloatType on cpu; "
                               "between processes travel dense tensors in main memory, None, "
                               "numbers, and lists of numbers"));
         message = {"text"};
         EXPECT_THAT(message_of([&] { transport.send(1, activation(1, 0), message); }),
                     StartsWith("value 0 of the message is of the kind String; "));
         message = {3};
         transport.send(1, activation(1, 0), message);
       },
       [](Transport& transport) {
         Message message;
         transport.receive(0, activation(1, 0), message);
         EXPECT_EQ(message.front().toInt(), 3);
       }});
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, ProcessTransportTest,
                         ::testing::Values(TransportKind::SharedMemory));
INSTANTIATE_TEST_SUITE_P(Gloo, ProcessTransportTest, ::testing::Values(TransportKind::Gloo));
INSTANTIATE_TEST_SUITE_P(OwnBackend, ProcessTransportTest,
                         ::testing::Values(TransportKind::OwnBackend));

TEST(SharedMemory, RefusesAMessageThatNobodyAskedFor) {
  run_over_shared_memory(
      {[](Transport& transport) {
         transport.begin_step(0);
         Message message = {1};
         transport.send(1, activation(1, 1), message);
         message = {2};
         transport.send(1, activation(1, 0), message);
       },
       [](Transport& transport) {
         transport.begin_step(0);
         Message message;
         transport.receive(0, activation(1, 0), message);
         EXPECT_EQ(message_of([&] { transport.begin_step(1); }),
                   "rank 0 sent the activations of microbatch 1 for stage 1 in step 0, which this "
                   "rank did not ask for; all ranks must run the same program");
       }},
      std::chrono::minutes(1));
}

// The scheduling policies of all threads of this process.
std::multiset<int> thread_policies() {
  std::multiset<int> policies;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    policies.insert(sched_getscheduler(std::stoi(thread.path().filename())));
  }
  return policies;
}

// Gloo's thread spins on a lock of the thread that it has taken the core from.
TEST(Gloo, HasAThreadThatTakesTheCoreOfNobody) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  if (sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "not scheduled as usual";
  const auto expect_patience = [](Transport& transport) {
    EXPECT_EQ(thread_policies().count(SCHED_BATCH), 1U);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
    transport.begin_step(0);
  };
  run_over_gloo({expect_patience, expect_patience}, std::chrono::minutes(1));
}

}  // namespace
}  // namespace penstock
