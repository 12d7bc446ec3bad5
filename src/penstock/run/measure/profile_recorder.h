#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/plan/simulator/profile.h"
#include "penstock/run/executor/observer.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {

struct ProfileOptions {
  // Of each rank, at the beginning: slower, and do not count as soon as there are others.
  int num_warm_up_steps = 1;
};

// Measures what each stage costs: the time of its F, I, W and B, and the bytes it keeps and sends.
// The result is what `simulate`, `search` and `report` take.
class ProfileRecorder final : public Observer {
 public:
  explicit ProfileRecorder(const ProfileOptions& options = {});
  ProfileRecorder(const ProfileRecorder&) = delete;
  ProfileRecorder& operator=(const ProfileRecorder&) = delete;
  ProfileRecorder(ProfileRecorder&&) = delete;
  ProfileRecorder& operator=(ProfileRecorder&&) = delete;
  ~ProfileRecorder() override;

  void step_begins(const Schedule& program) override;
  void rank_begins(int rank) override;
  void rank_ends(int rank) override;
  void action_begins(const ActionEvent& event) override;
  void action_ends(const ActionEvent& event) override;

  // Of each kind of action on each stage, the latest that count.
  static constexpr std::size_t kNumSamples = 1000;

  // The medians over the latest microbatches, of steps that train as soon as there are any: eval()
  // keeps no activations. A schedule without I and W measures B, of which each is then taken to be
  // a half; and B is I + W where it does not occur. Memory is what an action allocates on the
  // thread of its rank and has not freed when it ends; parts of containers that run elsewhere do
  // not count. Throws ArgumentError if nothing was measured. `stages` are those of the pipeline.
  Profile profile(const std::vector<std::shared_ptr<PipelineStage>>& stages) const;

 private:
  class MemoryCount;
  // Where samples are from; the later, the better. One replaces all that are worse.
  enum class Source { Nowhere, EvalWarmUp, Eval, TrainingWarmUp, Training };
  template <typename Value>
  class Latest {
   public:
    void add(Value value);
    bool empty() const { return values_.empty(); }
    Value median() const;  // zero if there are none

   private:
    std::vector<Value> values_;  // at most kNumSamples; then the oldest is at next_
    std::size_t next_ = 0;
  };
  // What was seen of one kind of action on one stage.
  struct Samples {
    Source source = Source::Nowhere;
    Latest<Duration> times;
    Latest<std::int64_t> kept_bytes;
    std::int64_t message_bytes = 0;
  };
  struct StageSamples {
    std::array<Samples, kNumActionKinds> kinds;
    const Samples& of(ActionKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
  };
  struct RankState;

  Source source_now(const RankState& state) const;
  StageCost cost_of(int stage) const;

  ProfileOptions options_;
  bool is_training_ = false;                       // in this step
  std::vector<StageSamples> stages_;               // each written by the rank that has the stage
  std::vector<std::unique_ptr<RankState>> ranks_;  // each used by its own rank
};

}  // namespace penstock
