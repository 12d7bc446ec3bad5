#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/microbatch/tree.h"
#include "penstock/run/transport/in_process/in_process_hub.h"
#include "tests/run/support/message_of.h"
#include "tests/run/transport/transport_ways.h"

// What every transport must do, whatever connects its ranks.
namespace penstock {
namespace {

class TransportTest : public ::testing::TestWithParam<RunRanks> {
 protected:
  void SetUp() override {
    if (GetParam() == &run_over_gloo && !has_gloo()) GTEST_SKIP() << "built without Gloo";
  }
  static void run(const Ranks& ranks, std::chrono::nanoseconds deadline = std::chrono::minutes(1)) {
    GetParam()(ranks, deadline);
  }
};

TEST_P(TransportTest, DeliversValuesOfAnyKind) {
  run({[](Transport& transport) {
         Message message = {
             torch::ones({2}).requires_grad_(), c10::IValue(), 7, 0.5, true, torch::Tensor()};
         transport.send(1, activation(1, 0), message);
         EXPECT_TRUE(message.empty());
       },
       [](Transport& transport) {
         Message message;
         transport.expect(0, activation(1, 0));
         transport.receive(0, activation(1, 0), message);
         ASSERT_EQ(message.size(), 6U);
         EXPECT_TRUE(torch::equal(message[0].toTensor(), torch::ones({2})));
         EXPECT_TRUE(message[0].toTensor().requires_grad());
         EXPECT_TRUE(message[0].toTensor().is_leaf());
         EXPECT_TRUE(message[1].isNone());
         EXPECT_EQ(message[2].toInt(), 7);
         EXPECT_EQ(message[3].toDouble(), 0.5);
         EXPECT_TRUE(message[4].toBool());
         EXPECT_FALSE(message[5].toTensor().defined());
       }});
}

// Every element type, and the shapes and layouts that are easy to get wrong. The same on both
// ranks.
Message all_kinds() {
  // Its own generator: the ranks call this at the same time.
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  Message values;
  for (const auto type : {torch::kBool, torch::kByte, torch::kChar, torch::kShort, torch::kInt,
                          torch::kLong, torch::kHalf, torch::kBFloat16, torch::kFloat,
                          torch::kDouble, torch::kComplexFloat, torch::kComplexDouble}) {
    values.emplace_back(torch::randint(0, 2, {3, 5}, generator).to(type));
  }
  values.emplace_back(torch::tensor(3.5));                   // no dimension
  values.emplace_back(torch::empty({0, 4}));                 // no rows
  values.emplace_back(torch::empty({3, 0, 2}));              // no columns
  values.emplace_back(torch::randn({3, 4}, generator).t());  // dense, in another order
  values.emplace_back(torch::randn({6, 4}, generator).slice(0, 0, 6, 2));
  values.emplace_back(torch::randn({4, 1}, generator).expand({4, 3}));
  values.emplace_back(
      torch::randn({2, 3, 4, 4}, generator).contiguous(at::MemoryFormat::ChannelsLast));
  values.emplace_back(torch::randn({3}, generator, torch::kComplexFloat).conj());
  values.emplace_back(
      torch::randn({4}, generator).slice(0, 1));  // begins in the middle of its memory
  values.emplace_back(c10::List<std::int64_t>({1, 2, 3}));
  values.emplace_back(c10::List<double>({0.5}));
  values.emplace_back(c10::List<bool>({true, false}));
  values.emplace_back(c10::List<std::int64_t>());
  return values;
}

TEST_P(TransportTest, DeliversEveryElementTypeShapeAndLayout) {
  run({[](Transport& transport) {
         Message message = all_kinds();
         transport.send(1, activation(1, 0), message);
       },
       [](Transport& transport) {
         const Message expected = all_kinds();
         Message message;
         transport.receive(0, activation(1, 0), message);
         ASSERT_EQ(message.size(), expected.size());
         for (std::size_t index = 0; index < message.size(); ++index) {
           EXPECT_TRUE(equal_values(message[index], expected[index]))
               << index << ": " << describe(message[index]) << " instead of "
               << describe(expected[index]);
         }
         const auto channels_last = message[message.size() - 7].toTensor();
         ASSERT_EQ(channels_last.dim(), 4);
         EXPECT_TRUE(channels_last.is_contiguous(at::MemoryFormat::ChannelsLast));
       }});
}

TEST_P(TransportTest, DeliversAMessageWithoutValues) {
  run({[](Transport& transport) {
         Message message;
         transport.send(1, activation(1, 0), message);
       },
       [](Transport& transport) {
         Message message = {1};
         transport.receive(0, activation(1, 0), message);
         EXPECT_TRUE(message.empty());
       }});
}

TEST_P(TransportTest, TellsMessagesApartByKeyWhateverTheirOrder) {
  constexpr int kSteps = 20;
  // All messages from rank 0 to rank 1, in an order of its own for each side and step.
  const auto keys = [](int step, int side) {
    std::vector<MessageKey> all;
    for (int stage = 1; stage < kExtent.num_stages; ++stage) {
      for (int microbatch = 0; microbatch < kExtent.num_microbatches; ++microbatch) {
        all.push_back(activation(stage, microbatch));
        all.push_back(gradient(stage, microbatch));
      }
    }
    std::shuffle(all.begin(), all.end(), std::minstd_rand(static_cast<unsigned>(2 * step + side)));
    return all;
  };
  const auto content = [](int step, MessageKey key) {
    return 1000 * step + 100 * key.stage + 10 * key.microbatch +
           (key.direction == Direction::Forward ? 1 : 0);
  };
  run({[=](Transport& transport) {
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           for (const MessageKey key : keys(step, 0)) {
             Message message = {torch::full({1 + key.stage}, content(step, key))};
             transport.send(1, key, message);
           }
           Message done;
           transport.receive(1, activation(0, 0), done);
         }
       },
       [=](Transport& transport) {
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           for (const MessageKey key : keys(step, 2)) transport.expect(0, key);
           for (const MessageKey key : keys(step, 1)) {
             Message message;
             transport.receive(0, key, message);
             EXPECT_TRUE(torch::equal(message.front().toTensor(),
                                      torch::full({1 + key.stage}, content(step, key))));
           }
           Message done;
           transport.send(0, activation(0, 0), done);
         }
       }});
}

TEST_P(TransportTest, LetsBothRanksSendFirst) {
  // As much as no connection takes without a receiver.
  constexpr std::int64_t kElements = std::int64_t{64} << 20U;
  const auto exchange = [](int peer, MessageKey out, MessageKey in) {
    return [=](Transport& transport) {
      Message message = {torch::full({kElements}, 1 + peer, torch::kByte)};
      transport.send(peer, out, message);
      transport.receive(peer, in, message);
      EXPECT_TRUE(torch::equal(message.front().toTensor(),
                               torch::full({kElements}, 2 - peer, torch::kByte)));
    };
  };
  run({exchange(1, activation(1, 0), gradient(0, 0)),
       exchange(0, gradient(0, 0), activation(1, 0))});
}

TEST_P(TransportTest, UsesAKeyAgainInTheNextStep) {
  run({[](Transport& transport) {
         for (int step = 0; step < 100; ++step) {
           transport.begin_step(step);
           Message message = {step};
           transport.send(1, activation(1, 0), message);
           transport.receive(1, gradient(0, 0), message);
         }
       },
       [](Transport& transport) {
         for (int step = 0; step < 100; ++step) {
           transport.begin_step(step);
           Message message;
           transport.receive(0, activation(1, 0), message);
           EXPECT_EQ(message.front().toInt(), step);
           transport.send(0, gradient(0, 0), message);
         }
       }});
}

// Messages that nobody answers, of other shapes in every step; and whoever keeps what it was given
// finds it unchanged.
TEST_P(TransportTest, KeepsWhatItHasDeliveredWhileShapesChange) {
  constexpr int kSteps = 60;
  const auto value = [](int step) {
    return torch::full({(step * 7919) % 20'000, step % 3 + 1}, step);
  };
  run({[=](Transport& transport) {
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           Message message = {value(step), value(step + 1)};
           transport.send(1, activation(1, 0), message);
           transport.receive(1, gradient(0, 0), message);
         }
       },
       [=](Transport& transport) {
         std::vector<Message> kept;
         for (int step = 0; step < kSteps; ++step) {
           transport.begin_step(step);
           transport.expect(0, activation(1, 0));
           Message message;
           transport.receive(0, activation(1, 0), message);
           if (step % 2 == 0) kept.push_back(message);
           message = {torch::Tensor()};
           transport.send(0, gradient(0, 0), message);
         }
         for (int step = 0; step < kSteps; step += 2) {
           const Message& message = kept[static_cast<std::size_t>(step / 2)];
           EXPECT_TRUE(torch::equal(message[0].toTensor(), value(step))) << "step " << step;
           EXPECT_TRUE(torch::equal(message[1].toTensor(), value(step + 1))) << "step " << step;
         }
       }});
}

// The sizes are those from which on, and up to which, transports do something else.
TEST_P(TransportTest, DeliversLargeTensorsWhateverCameBefore) {
  const auto numbers = [](std::int64_t count, int first) {
    return torch::arange(first, first + count, torch::kFloat).requires_grad_() * 1;
  };
  std::vector<Message> messages;
  int first = 0;
  for (const std::int64_t count : {10, 100'000, 100'000, 100'000, 10, 100'000, 300'000, 300'000,
                                   100'000, 100'000, 2'000, 2'000}) {
    messages.push_back({numbers(count, ++first)});
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    messages.push_back({numbers(7, 1), numbers(190'000, ++first), 5, numbers(180'000, ++first)});
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    messages.push_back(
        {numbers(160'000, ++first).view({400, 400}).t().clone(torch::MemoryFormat::Preserve)});
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    messages.push_back({numbers(160'000, ++first).detach()});
    messages.push_back({numbers(200'000, ++first).slice(0, 1, 160'001)});
  }
  run({[&](Transport& transport) {
         std::int64_t step = 0;
         for (const Message& message : messages) {
           transport.begin_step(step++);
           Message sent = message;
           transport.send(1, activation(1, 0), sent);
           receive_patiently(transport, 1, gradient(0, 0));
         }
       },
       [&](Transport& transport) {
         std::int64_t step = 0;
         for (const Message& message : messages) {
           transport.begin_step(step++);
           Message received = receive_patiently(transport, 0, activation(1, 0));
           ASSERT_EQ(received.size(), message.size());
           for (std::size_t index = 0; index < message.size(); ++index) {
             if (!message[index].isTensor()) continue;
             const torch::Tensor& expected = message[index].toTensor();
             EXPECT_TRUE(torch::equal(received[index].toTensor(), expected)) << "step " << step;
             EXPECT_EQ(received[index].toTensor().requires_grad(), expected.requires_grad());
           }
           Message answer;
           transport.send(0, gradient(0, 0), answer);
         }
       }});
}

TEST_P(TransportTest, GivesUpOnAMessageThatDoesNotCome) {
  run({[](Transport& transport) { receive_patiently(transport, 1, activation(0, 0)); },
       [](Transport& transport) {
         Message message;
         EXPECT_EQ(message_of([&] { transport.receive(0, gradient(1, 2), message); }),
                   "waited 0.02 s for the gradients of microbatch 2 from rank 0");
         transport.send(0, activation(0, 0), message);
       }},
      std::chrono::milliseconds(20));
}

TEST_P(TransportTest, EndsItsWaitWhenAnotherThreadStopsIt) {
  run({[](Transport& transport) {
         std::thread other([&transport] { transport.stop(); });
         Message message;
         EXPECT_THROW(transport.receive(1, activation(0, 1), message), StoppedError);
         other.join();
         EXPECT_THROW(transport.receive(1, activation(0, 1), message), StoppedError);
       },
       // Ends with the other, in one way or another.
       [](Transport& transport) {
         if (GetParam() == &run_over_own_backend) return;  // which does not notice
         Message message;
         EXPECT_THROW(transport.receive(0, activation(1, 1), message), Error);
       }},
      std::chrono::hours(1));
}

INSTANTIATE_TEST_SUITE_P(Threads, TransportTest, ::testing::Values(&run_on_threads));
INSTANTIATE_TEST_SUITE_P(SharedMemory, TransportTest, ::testing::Values(&run_over_shared_memory));
INSTANTIATE_TEST_SUITE_P(Gloo, TransportTest, ::testing::Values(&run_over_gloo));
INSTANTIATE_TEST_SUITE_P(OwnBackend, TransportTest, ::testing::Values(&run_over_own_backend));

// Gloo has nobody who would hear of it.
class StopTest : public TransportTest {};

TEST_P(StopTest, EndsTheWaitsOfAllRanks) {
  const auto wait_for_nothing = [](Transport& transport) {
    Message message;
    EXPECT_THROW(transport.receive(0, activation(1, 1), message), StoppedError);
  };
  run({[](Transport& transport) { transport.stop(); }, wait_for_nothing, wait_for_nothing},
      std::chrono::hours(1));
}

INSTANTIATE_TEST_SUITE_P(Threads, StopTest, ::testing::Values(&run_on_threads));
INSTANTIATE_TEST_SUITE_P(SharedMemory, StopTest, ::testing::Values(&run_over_shared_memory));

TEST(InProcessHub, HandsTensorsOverWithoutCopying) {
  InProcessHub hub(2, kExtent, wait_policy_for(2, std::chrono::minutes(1)));
  const torch::Tensor tensor = torch::ones({3});
  Message message = {tensor};
  hub.endpoint(0).send(1, activation(1, 0), message);
  hub.endpoint(1).receive(0, activation(1, 0), message);
  EXPECT_EQ(message.front().toTensor().data_ptr(), tensor.data_ptr());
}

// As rank 2 of a long fill, which rank 0 works on while rank 1 waits, too.
TEST(InProcessHub, WaitsAsLongAsAnyRankMoves) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kDeadline = std::chrono::milliseconds(250);
  InProcessHub hub(3, kExtent, {.spin = {}, .deadline = kDeadline});
  std::thread others([&] {
    const Clock::time_point begin = Clock::now();
    for (int finished = 1; Clock::now() - begin < 3 * kDeadline; ++finished) {
      hub.progress().set_finished(0, finished);
      std::this_thread::yield();
    }
    Message message = {torch::ones({1})};
    hub.endpoint(1).send(2, activation(2, 0), message);
  });
  Message message;
  EXPECT_EQ(message_of([&] { hub.endpoint(2).receive(1, activation(2, 0), message); }),
            "nothing was thrown");
  others.join();
  EXPECT_EQ(message_of([&] { hub.endpoint(2).receive(1, activation(2, 1), message); }),
            "waited 0.25 s for the activations of microbatch 1 from rank 1");
}

TEST(InProcessHub, ForgetsMessagesAndStopsAfterAFailure) {
  InProcessHub hub(2, kExtent, {.spin = {}, .deadline = std::chrono::milliseconds(5)});
  Message message = {torch::ones({1})};
  hub.endpoint(0).send(1, activation(1, 0), message);
  hub.endpoint(0).stop();
  EXPECT_THROW(hub.endpoint(1).receive(0, activation(1, 0), message), StoppedError);
  hub.fail_step(nullptr);
  EXPECT_THROW(hub.endpoint(1).receive(0, activation(1, 0), message), TransportError);
}

}  // namespace
}  // namespace penstock
