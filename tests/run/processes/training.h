#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/executor/observer.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/transport/open_transport.h"
#include "penstock/run/transport/rank_group.h"
#include "tests/run/support/models.h"
#include "tests/run/support/whole_models.h"

namespace penstock {

// A schedule to train a test model with.
struct TrainingCase {
  std::string schedule;
  int num_ranks = 2;
  int num_microbatches = 4;
};

// The default layouts of every schedule that `num_ranks` ranks can train with.
std::vector<TrainingCase> training_cases(int num_ranks);

struct TrainingOptions {
  std::shared_ptr<RankGroup> group = nullptr;
  int num_steps = 2;
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
  std::vector<std::shared_ptr<Observer>> observers = {};
};

// Trains the stages of this process and returns a line per tensor: outputs, losses, gradients and
// parameters, each with a fingerprint of all its bits. The lines of all processes together are, in
// some order, those of one process that has all ranks as threads.
std::string train(const TestModel& model, const TrainingCase& shape,
                  const TrainingOptions& options);

// The same with an order, or a lowered program, of any origin.
std::string train(const TestModel& model, const std::string& name, const Schedule& order,
                  const TrainingOptions& options);

// The same for a model that every process captures whole and cuts, to keep its own stages.
std::string train_whole(const WholeModel& model, const TrainingCase& shape,
                        const TrainingOptions& options);

// Of all bits of a tensor.
std::uint64_t fingerprint(const torch::Tensor& tensor);

// Of `stages`, those that `order` gives to this process.
StageList local_stages(const StageList& stages, const Schedule& order,
                       const std::shared_ptr<RankGroup>& group);

// One of the three stages of a model that is captured whole, with that many hidden units.
std::shared_ptr<PipelineStage> captured_stage(int hidden, int stage);

std::vector<std::string> sorted_lines(const std::string& text);

// Runs `train_all` in processes that are connected in that way, and once with all ranks as threads;
// both must have the same lines. Returns them.
std::vector<std::string> expect_like_threads(
    int num_ranks, TransportKind transport,
    const std::function<std::string(const std::shared_ptr<RankGroup>&)>& train_all);

}  // namespace penstock
