#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/run/data_parallel/sharded_parameters.h"
#include "penstock/run/pipeline/pipeline_replicas.h"
#include "penstock/run/pipeline/schedules.h"
#include "tests/run/data_parallel/small_stages.h"
#include "tests/run/support/message_of.h"

// Replicas that are threads, and what they must have in common.
namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PipelineReplicas, StopTogetherAndGoOnAfterwards) {
  for (const bool is_sharded : {false, true}) {
    SCOPED_TRACE(is_sharded);
    auto fails = std::make_shared<std::atomic<bool>>(true);
    std::vector<StageList> stages;
    PipelineReplicas replicas(3, [&](const Replica& replica) {
      StageList own = wide_stages(4);
      if (replica.index == 1) {
        own[2] = stage_with({},
                            [fails](torch::Tensor input) {
                              if (*fails) throw std::runtime_error("out of luck");
                              return input;
                            },
                            {2, 4});
      } else {
        own[2] = stage_with({}, [](torch::Tensor input) { return input; }, {2, 4});
      }
      if (is_sharded) {
        for (const auto& stage : own) shard_stage(*stage, {replica.index, replica.count});
      }
      stages.push_back(own);
      ScheduleOptions options = sum_options(replica, 4);
      options.deadline = std::chrono::minutes(5);
      return std::make_unique<PipelineSchedule>(
          own, make_schedule("Interleaved1F1B", {.num_ranks = 2, .num_microbatches = 4}), options);
    });
    const torch::Tensor inputs = torch::ones({12, kWidth});
    EXPECT_THAT(message_of([&] { replicas.step({inputs}); }),
                AllOf(StartsWith("rank 0, step "), HasSubstr("(2F0)"), HasSubstr("out of luck")));
    for (const StageList& own : stages) {
      for (const torch::Tensor& parameter : own[0]->parameters()) {
        EXPECT_FALSE(parameter.grad().defined()) << "a part of the sum is of no use";
      }
    }
    *fails = false;
    for (int step = 0; step < 2; ++step) EXPECT_EQ(replicas.step({inputs}).losses.size(), 12U);
  }
}

TEST(PipelineReplicas, MergeTheOutputsOfAllMicrobatchesOnce) {
  const auto output_with = [](const ChunkSpec& spec, const torch::Tensor& inputs) {
    PipelineReplicas replicas(2, [&spec](const Replica& replica) {
      const torch::Tensor weight = trained(1);
      ScheduleOptions options = sum_options(replica, 2);
      options.output_merge_spec = spec;
      return std::make_unique<PipelineSchedule>(
          StageList{stage_with({{"weight", weight}},
                               [weight](torch::Tensor input) { return input * weight; })},
          one_rank(2), options);
    });
    const torch::Tensor trained = replicas.step({inputs}).output.toTensor();
    const torch::Tensor evaluated = replicas.eval({inputs}).output.toTensor();
    EXPECT_TRUE(torch::equal(trained, evaluated));
    return trained;
  };
  const torch::Tensor digits = torch::tensor({1.0, 2.0, 3.0, 4.0});
  const ChunkSpec append = ChunkSpec::reduce(
      torch::full({1}, 9.0), [](const c10::IValue& left, const c10::IValue& right) {
        return c10::IValue(left.toTensor() * 10 + right.toTensor());
      });
  EXPECT_EQ(output_with(append, digits).item<double>(), 91234);
  EXPECT_EQ(output_with(ChunkSpec::replicate(), torch::full({4}, 5.0)).item<double>(), 5);
}

// It may have replicas in other processes, of which make() knows.
TEST(PipelineReplicas, OfOneHaveNoGroupAndNoThreadOfTheirOwn) {
  PipelineReplicas replicas(1, [](const Replica& replica) {
    EXPECT_EQ(replica.group, nullptr);
    EXPECT_EQ(replica.count, 1);
    return std::make_unique<PipelineSchedule>(wide_stages(1), one_rank(2), sum_options(replica, 2));
  });
  EXPECT_EQ(replicas.step({torch::ones({4, kWidth})}).losses.size(), 2U);
  std::thread::id thread;
  replicas.run([&](int) { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_THAT(message_of([&] { replicas.run([](int) { throw Error("it is over"); }); }),
              HasSubstr("it is over"));
}

TEST(PipelineReplicas, NameWhoKeepsThemWaiting) {
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    ScheduleOptions options = sum_options(replica);
    options.deadline = std::chrono::milliseconds(200);
    return std::make_unique<PipelineSchedule>(wide_stages(1), one_rank(), options);
  });
  replicas.step({torch::ones({2, kWidth})});
  EXPECT_THAT(message_of([&] {
                replicas.run([&](int replica) {
                  if (replica == 0) replicas.replica(0).step({torch::ones({1, kWidth})});
                });
              }),
              HasSubstr("waited 0.2 s for replica 1 to send its part of the gradients of stage 0"));
}

TEST(PipelineReplicas, MustHaveTheSameModel) {
  const auto train = [](double second_value, bool second_is_frozen) {
    return message_of([&] {
      PipelineReplicas replicas(2, [&](const Replica& replica) {
        const bool is_second = replica.index == 1;
        const torch::Tensor weight =
            torch::full({2}, is_second ? second_value : 1.0,
                        torch::requires_grad(!(is_second && second_is_frozen)));
        const auto stage = stage_with({{"other", trained(1)}, {"weight", weight}},
                                      [weight](torch::Tensor input) { return input * weight; });
        return std::make_unique<PipelineSchedule>(StageList{stage}, one_rank(),
                                                  sum_options(replica));
      });
      replicas.step({torch::ones({2, 2})});
    });
  };
  EXPECT_EQ(train(1, false), "nothing was thrown");
  EXPECT_EQ(train(2, false),
            "replica 1 and replica 0 do not have the same model: the parameter \"weight\" of stage "
            "0 differs, in its values; give all replicas the same parameters, from one seed or one "
            "checkpoint");
  EXPECT_THAT(train(1, true), HasSubstr("in name, type, shape or whether it is trained"));
}

TEST(PipelineReplicas, AreComparedAgainAfterAFailure) {
  std::vector<torch::Tensor> weights;
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    const torch::Tensor weight = trained(1);
    weights.push_back(weight);
    const auto stage =
        stage_with({{"weight", weight}}, [weight](torch::Tensor input) { return input * weight; });
    return std::make_unique<PipelineSchedule>(StageList{stage}, one_rank(), sum_options(replica));
  });
  const auto train = [&] { replicas.step({torch::ones({2, 2})}); };
  EXPECT_EQ(message_of(train), "nothing was thrown");
  EXPECT_EQ(message_of([&] {
              replicas.run([](int replica) {
                if (replica == 1) throw std::runtime_error("out of luck");
              });
            }),
            "out of luck");
  EXPECT_EQ(message_of(train), "nothing was thrown");

  EXPECT_EQ(message_of([&] {
              replicas.run([&](int replica) {
                if (replica == 1) throw std::runtime_error("out of luck again");
                const torch::NoGradGuard no_gradients;
                weights[0].fill_(2);  // an optimizer step that only one of them took
              });
            }),
            "out of luck again");
  EXPECT_THAT(message_of(train), HasSubstr("\"weight\" of stage 0 differs, in its values"));
}

TEST(PipelineReplicas, MustBeMadeAlike) {
  EXPECT_EQ(message_of([] {
              PipelineReplicas(2, [](const Replica&) {
                return std::make_unique<PipelineSchedule>(wide_stages(1), one_rank(),
                                                          ScheduleOptions{});
              });
            }),
            "the pipeline of replica 0 does not have the group that it was given; set "
            "ScheduleOptions::data_group");
  EXPECT_EQ(message_of([] {
              PipelineReplicas(2, [](const Replica& replica) {
                return std::make_unique<PipelineSchedule>(wide_stages(1),
                                                          one_rank(1 + replica.index),
                                                          sum_options(replica, 1 + replica.index));
              });
            }),
            "replica 1 has another schedule than replica 0; give all the same");
  EXPECT_EQ(message_of([] { PipelineReplicas(0, {}); }),
            "there must be at least one replica, not 0");
}

TEST(PipelineReplicas, RefuseParametersThatAreNoLongerFrozen) {
  std::vector<torch::Tensor> all;
  PipelineReplicas replicas(2, [&](const Replica& replica) {
    const torch::Tensor own = torch::ones({});
    all.push_back(own);
    return std::make_unique<PipelineSchedule>(
        StageList{stage_with({{"other", trained(1)}, {"late", own}},
                             [own](torch::Tensor input) { return input * own; })},
        one_rank(), sum_options(replica));
  });
  for (torch::Tensor& own : all) own.set_requires_grad(true);
  EXPECT_EQ(message_of([&] { replicas.step({torch::ones({2})}); }),
            "the parameter \"late\" of stage 0 was frozen when the pipeline was made, and is not "
            "any more; make the stages and the pipeline anew");
}

}  // namespace
}  // namespace penstock
