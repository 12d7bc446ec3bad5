#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/run/transport/in_process/in_process_hub.h"

// What every transport must do, whatever connects its ranks.
namespace penstock {
namespace {

using testing::HasSubstr;

constexpr Extent kExtent{.num_stages = 4, .num_microbatches = 3};

// Runs each function as a rank of its own, and returns when all have.
using Ranks = std::vector<std::function<void(Transport&)>>;
using RunRanks = void (*)(const Ranks& ranks, std::chrono::nanoseconds deadline);

void run_on_threads(const Ranks& ranks, std::chrono::nanoseconds deadline) {
  InProcessHub hub(static_cast<int>(ranks.size()), kExtent,
                   wait_policy_for(static_cast<int>(ranks.size()), deadline));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { ranks[rank](hub.endpoint(static_cast<int>(rank))); });
  }
  for (std::thread& thread : threads) thread.join();
}

class TransportTest : public testing::TestWithParam<RunRanks> {
 protected:
  static void run(const Ranks& ranks, std::chrono::nanoseconds deadline = std::chrono::minutes(1)) {
    GetParam()(ranks, deadline);
  }
};

MessageKey activation(int stage, int microbatch) {
  return {stage, microbatch, Direction::Forward};
}

MessageKey gradient(int stage, int microbatch) {
  return {stage, microbatch, Direction::Backward};
}

TEST_P(TransportTest, DeliversValuesOfAnyKind) {
  run({[](Transport& transport) {
         Message message = {
             torch::arange(6).view({2, 3}), c10::IValue(), 7, 0.5, true, torch::Tensor()};
         message[0] = torch::ones({2}).requires_grad_();
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

TEST_P(TransportTest, TellsMessagesApartByKeyWhateverTheirOrder) {
  run({[](Transport& transport) {
         for (const int microbatch : {2, 0, 1}) {
           Message message = {10 + microbatch};
           transport.send(1, activation(1, microbatch), message);
           message = {20 + microbatch};
           transport.send(1, gradient(1, microbatch), message);
         }
       },
       [](Transport& transport) {
         for (const int microbatch : {0, 1, 2}) {
           Message message;
           transport.receive(0, gradient(1, microbatch), message);
           EXPECT_EQ(message.front().toInt(), 20 + microbatch);
         }
         for (const int microbatch : {1, 2, 0}) {
           Message message;
           transport.receive(0, activation(1, microbatch), message);
           EXPECT_EQ(message.front().toInt(), 10 + microbatch);
         }
       }});
}

TEST_P(TransportTest, LetsBothRanksSendFirst) {
  const auto exchange = [](int peer, MessageKey out, MessageKey in) {
    return [=](Transport& transport) {
      Message message = {1};
      transport.send(peer, out, message);
      transport.receive(peer, in, message);
      EXPECT_EQ(message.front().toInt(), 1);
    };
  };
  run({exchange(1, activation(1, 0), gradient(0, 0)),
       exchange(0, gradient(0, 0), activation(1, 0))});
}

TEST_P(TransportTest, UsesAKeyAgainInTheNextStep) {
  run({[](Transport& transport) {
         for (int step = 0; step < 100; ++step) {
           Message message = {step};
           transport.send(1, activation(1, 0), message);
           transport.receive(1, gradient(0, 0), message);
         }
       },
       [](Transport& transport) {
         for (int step = 0; step < 100; ++step) {
           Message message;
           transport.receive(0, activation(1, 0), message);
           EXPECT_EQ(message.front().toInt(), step);
           transport.send(0, gradient(0, 0), message);
         }
       }});
}

TEST_P(TransportTest, GivesUpOnAMessageThatDoesNotCome) {
  run({[](Transport&) {},
       [](Transport& transport) {
         Message message;
         try {
           transport.receive(0, gradient(1, 2), message);
           ADD_FAILURE() << "nothing was thrown";
         } catch (const TransportError& error) {
           EXPECT_THAT(error.what(),
                       HasSubstr("waited 0.02 s for the gradients of microbatch 2 from rank 0"));
         }
       }},
      std::chrono::milliseconds(20));
}

TEST_P(TransportTest, EndsEveryWaitWhenItIsStopped) {
  const auto wait_for_nothing = [](Transport& transport) {
    Message message;
    EXPECT_THROW(transport.receive(0, activation(1, 1), message), StoppedError);
  };
  run({[](Transport& transport) { transport.stop(); }, wait_for_nothing, wait_for_nothing},
      std::chrono::hours(1));
}

INSTANTIATE_TEST_SUITE_P(Threads, TransportTest, testing::Values(&run_on_threads));

TEST(InProcessHub, HandsTensorsOverWithoutCopying) {
  InProcessHub hub(2, kExtent, wait_policy_for(2, std::chrono::minutes(1)));
  const torch::Tensor tensor = torch::ones({3});
  Message message = {tensor};
  hub.endpoint(0).send(1, activation(1, 0), message);
  hub.endpoint(1).receive(0, activation(1, 0), message);
  EXPECT_EQ(message.front().toTensor().data_ptr(), tensor.data_ptr());
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
