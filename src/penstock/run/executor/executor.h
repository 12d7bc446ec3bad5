#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/plan/schedule/microbatch_grid.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/data_parallel/replica_link.h"
#include "penstock/run/executor/custom_function.h"
#include "penstock/run/executor/observer.h"
#include "penstock/run/executor/step_error.h"
#include "penstock/run/executor/step_work.h"
#include "penstock/run/stage/pipeline_stage.h"
#include "penstock/run/transport/progress_board.h"
#include "penstock/run/transport/transport.h"

namespace penstock {

struct Instruction;

struct ExecutorOptions {
  CustomFunctions custom_functions = {};
  std::vector<std::shared_ptr<Observer>> observers = {};
};

// Walks one rank's list of a lowered program, action by action. There is no other loop: every
// schedule, built in or not, in training or not, is run by this one.
class Executor {
 public:
  // `program` must be valid and outlive the executor, as must everything that is referred to.
  // `stages` are those that the program places on `rank`, in any order; `replicas` is null if none
  // of them is replicated or sharded.
  Executor(int rank, const Schedule& program, std::span<PipelineStage* const> stages,
           Transport& transport, ProgressBoard& progress, ReplicaLink* replicas,
           const ExecutorOptions& options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  Executor(Executor&&) = delete;
  Executor& operator=(Executor&&) = delete;
  ~Executor();

  // Runs the list once. If an action throws, stops all other ranks and throws StepError; if another
  // rank was first, throws StoppedError. Stages are to be told of the step's begin and end.
  void run(StepWork& work);

  // The largest number of (stage, microbatch) pairs the rank has held at a time in the last run.
  int peak_activations() const { return peak_activations_; }

 private:
  class Context;

  void walk();
  void finish_gradients();
  void fetch(const Instruction& instruction);
  void perform(const Instruction& instruction);
  void perform_default(const Instruction& instruction);
  void forward(const Instruction& instruction);
  void finish_last(const Instruction& instruction, const c10::IValue& output);
  void backward(const Instruction& instruction);
  void expect_receives();
  const KeywordArguments& keywords_of(const Instruction& instruction);
  const Message& loss_seed(const at::Tensor& loss, double weight);
  void perform_observed(const Instruction& instruction, bool is_part);
  std::int64_t message_bytes(const Instruction& instruction);
  [[noreturn]] void fail(const std::string& cause,
                         StepError::Origin origin = StepError::Origin::Action);

  int rank_;
  const Schedule& program_;
  Transport& transport_;
  ProgressBoard& progress_;
  ReplicaLink* replicas_;
  const ExecutorOptions& options_;
  std::vector<PipelineStage*> stages_;
  std::vector<Instruction> instructions_;
  std::vector<const Instruction*> receives_;        // those of instructions_, in their order
  std::vector<std::vector<std::string>> keywords_;  // that each stage takes
  std::vector<KeywordArguments> chosen_keywords_;   // for the stage's forward that comes next

  StepWork* work_ = nullptr;
  int step_ = 0;  // the position in the list
  int peak_activations_ = 0;
  std::size_t num_receives_reached_ = 0;  // of receives_, by the list
  std::size_t num_expected_ = 0;          // that the transport knows of

  // By position of the stage in stages_ and by microbatch: on their way in and out.
  MicrobatchGrid<Message> activations_in_;
  MicrobatchGrid<Message> activations_out_;
  MicrobatchGrid<Message> gradients_in_;
  MicrobatchGrid<Message> gradients_out_;

  Message seed_;
  double seed_weight_ = 0;
};

}  // namespace penstock
