#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>

#include "penstock/plan/passes/add_sharding.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/autograd/backward_graph.h"
#include "penstock/run/data_parallel/parameter_bytes.h"
#include "penstock/run/executor/custom_function.h"
#include "penstock/run/executor/loss_function.h"
#include "penstock/run/executor/observer.h"
#include "penstock/run/executor/step_error.h"
#include "penstock/run/microbatch/split.h"
#include "penstock/run/stage/pipeline_stage.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// What each microbatch counts in the gradient of a step.
enum class LossWeights {
  Equal,   // 1 / number of microbatches of all replicas: the mean of their losses
  ByRows,  // its share of the target's rows: the mean over the batch, also if it splits unevenly
};

struct ScheduleOptions {
  int num_microbatches = 1;
  // Ranks, one thread each. 0: those of the group, or as many as the schedule's usual number of
  // stages per rank makes.
  int num_ranks = 0;
  // Ranks that are processes. Without a group, all are threads of this one.
  std::shared_ptr<RankGroup> group = nullptr;
  // The replicas of this pipeline, of which it is one: they train on different data, with the
  // gradients of all. For processes, a ProcessRanks of the data group of a Mesh; for threads, see
  // PipelineReplicas. Stages are replicated, unless shard_stage() has sharded them.
  std::shared_ptr<RankGroup> data_group = nullptr;
  // How many stages of a rank are gathered at a time, if stages are sharded; see add_sharding().
  int max_active_stages = ShardingOptions{}.max_active_stages;
  LossFunction loss = {};  // without one, only eval() works
  // Whether step() may run with a loss that nothing requiring a gradient has a part in. Such a step
  // trains nothing, which is mostly a detach() too many: by default it fails.
  bool allows_detached_loss = false;

  SplitOptions split = {};                                    // of the inputs
  std::optional<ChunkSpec> target_chunk_spec = std::nullopt;  // default: as inputs
  std::optional<ChunkSpec> output_merge_spec = std::nullopt;

  // True suits losses that are means: gradients are those of the mean loss over the microbatches of
  // all replicas.
  // False suits sums: gradients are those of the sum of the losses.
  bool scale_grads = true;
  LossWeights loss_weights = LossWeights::Equal;
  WeightGradients weight_gradients = WeightGradients::Exact;

  CustomFunctions custom_functions = {};
  std::vector<std::shared_ptr<Observer>> observers = {};

  // Of each rank. 0: those of the caller, divided by its ranks; and no more than each rank of the
  // processes that share the caller's cores can have one for.
  int intra_op_threads = 0;
  // Each rank, of all processes and replicas on this host, to a core of its own while it works;
  // unless they outnumber the cores.
  bool pins_threads = false;
  // For how long a rank that waits for another one bears that nobody gets on. Positive; a year is
  // as good as longer.
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
};

struct StepOptions {
  c10::IValue target = {};            // any tree, split like the inputs
  KeywordArguments kwargs = {};       // for every stage that takes them
  KeywordArguments loss_kwargs = {};  // for the loss function, whole
  bool return_outputs = true;
  // Of random numbers. Without one, that of step_seed(n) in random_scope.h for the nth call of
  // step(), from 0.
  std::optional<std::uint64_t> seed = std::nullopt;
};

// A batch that is split already: one entry per microbatch in each list that is not empty.
struct PresplitBatch {
  std::vector<Microbatch> inputs = {};
  std::vector<c10::IValue> targets = {};
};

// For a process that does not have the first stage: step(kNoInputs).
struct NoInputs {
  explicit constexpr NoInputs() = default;
};
inline constexpr NoInputs kNoInputs{};

struct MicrobatchResults;  // internal/batch.h
struct StepSeries;         // step_series.h

struct StepResult {
  c10::IValue output;              // merged; None unless return_outputs
  std::vector<at::Tensor> losses;  // by microbatch, not scaled; empty if none was computed
};

// A pipeline: the stages of a model, and the program that says what each rank does. The program is
// proved before anything runs.
//
// Without a group, all stages are here and each rank is a thread. With one, each process makes the
// pipeline of its own stages alone, with the same schedule and options as the others, and calls
// step() and eval() as often as they do. The rank of the first stage then gives the inputs; that of
// the last one gives the target and gets outputs and losses. Others may leave these out, and get
// nothing. A step that fails in any process fails in all, and ends what the group can do.
//
// For one caller at a time. The calling thread works as the first rank of the process.
class PipelineSchedule {
 public:
  // A custom schedule: a compute order, or a program that is lowered already. Throws ScheduleError
  // if it is not valid, ArgumentError if stages or microbatches do not fit it.
  PipelineSchedule(StageList stages, Schedule schedule, ScheduleOptions options);
  PipelineSchedule(const PipelineSchedule&) = delete;
  PipelineSchedule& operator=(const PipelineSchedule&) = delete;
  PipelineSchedule(PipelineSchedule&&) = delete;
  PipelineSchedule& operator=(PipelineSchedule&&) = delete;
  virtual ~PipelineSchedule();

  // Trains on one batch: forward, loss and backward of every microbatch. Gradients are added to
  // those that are there; nothing else changes. Throws StepError if an action fails; the stages
  // are then free of what the step has left, except for the gradients it has already added. Throws
  // ArgumentError, after all that, if the outputs cannot be merged.
  StepResult step(std::vector<c10::IValue> inputs, const StepOptions& options = {});
  StepResult step(const PresplitBatch& batch, const StepOptions& options = {});
  StepResult step(NoInputs none, const StepOptions& options = {});

  // Runs one step after the other without a barrier; StaggeredTrainer makes training of it. Inputs
  // must not require gradients, and parameters that several stages use must be on one rank, unless
  // each rank is a process. With replicas, which all call it, no stages may share parameters, and
  // loss weights must be equal. Throws ArgumentError if that is not so, and otherwise what step()
  // throws; ranks may then have got to different steps.
  void run_series(const StepSeries& series);

  // Tells `value`, a dense tensor, to the other processes of the pipeline, and returns what each of
  // them tells, by its first rank; without a group, `value` alone. To be called by all processes at
  // the same point of their work, between steps.
  std::vector<at::Tensor> exchange(const at::Tensor& value);

  // The same with the replicas of this pipeline: what each of them tells, in their order; without
  // a data group, `value` alone.
  std::vector<at::Tensor> exchange_with_replicas(const at::Tensor& value);

  // Runs the forwards alone, without recording gradients. A target makes it compute losses, as does
  // a loss that needs none.
  StepResult eval(std::vector<c10::IValue> inputs, const StepOptions& options = {});
  StepResult eval(const PresplitBatch& batch, const StepOptions& options = {});
  StepResult eval(NoInputs none, const StepOptions& options = {});

  int num_ranks() const;
  int num_microbatches() const;
  const ScheduleOptions& options() const;
  const StageList& stages() const;             // of this process
  std::vector<at::Tensor> parameters() const;  // of these stages, each tensor or slice once
  const Schedule& program() const;             // what step() runs
  const Schedule& eval_program() const;        // what eval() runs

  // Per rank of this process, the largest number of (stage, microbatch) pairs held at a time in the
  // last step().
  std::vector<int> peak_activations() const;

  // Per rank of this process, what its sharded stages take.
  std::vector<ParameterBytes> parameter_bytes() const;

 private:
  friend class PipelineReplicas;

  // step() or eval() without merging the outputs, for whoever has those of more microbatches.
  MicrobatchResults run_unmerged(const PresplitBatch& batch, const StepOptions& options,
                                 bool is_training);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
