#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace penstock {

// Where in a training run random numbers are drawn.
struct RandomPlace {
  std::uint64_t step_seed = 0;  // StepOptions::seed, or step_seed()
  int microbatch = 0;
  int stage = 0;
};

// The seed of a step that was given none, from its number among the steps of a PipelineSchedule and
// the seed of libtorch's default CPU generator, which is not advanced. So torch::manual_seed()
// decides what a run draws.
std::uint64_t step_seed(std::uint64_t step);

// What the numbers of a RandomScope depend on, until seed_site() is called.
enum class RandomStream {
  OfStage,  // step, microbatch and stage, and how often was drawn before
  PerDraw,  // step, microbatch and how often was drawn before, as if each draw were a site
};

// As long as it lives, operators on the CPU that are not given a generator draw, on its thread,
// from one of its own. The numbers depend on the place alone: not on the schedule, the placement or
// timing, and they are the same when a forward is repeated. Pipelines open one for every forward;
// to draw the same numbers without a pipeline,
//
//   RandomScope scope({.step_seed = seed, .microbatch = 2, .stage = 1});
//   output = block->forward(input);                          // as stage 1 of a pipeline by hand
//
//   RandomScope scope({.step_seed = seed, .microbatch = 2}, RandomStream::PerDraw);
//   output = model->forward(input);                          // as the stages of a captured model
//
// The latter is true of models whose every random operator draws once. Scopes may be nested. One
// that nobody draws from costs nothing to speak of.
class RandomScope {
 public:
  explicit RandomScope(const RandomPlace& place, RandomStream stream = RandomStream::OfStage);
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
  RandomScope(RandomScope&&) = delete;
  RandomScope& operator=(RandomScope&&) = delete;
  ~RandomScope();

  // The innermost of this thread, or null.
  static RandomScope* current();

  // What is drawn from here on depends on step, microbatch and `site` alone, and not on the stage.
  // The modules of captured graphs call it before every operator that draws, so that numbers do not
  // depend on where the model was cut; executors call it with kLoss before the loss.
  void seed_site(std::uint64_t site);
  // The same, for an operator that may run several times in one scope, in a loop: each time it
  // draws other numbers. The first time is seed_site().
  void seed_repeated_site(std::uint64_t site);
  static constexpr std::uint64_t kLoss = ~std::uint64_t{0};

 private:
  friend struct RandomDraw;

  RandomScope* outer_;
  std::size_t depth_;       // among the scopes of the thread
  std::uint64_t base_;      // of step and microbatch
  std::uint64_t seed_;      // of the numbers to draw next
  bool is_seeded_ = false;  // whether the generator has it
  RandomStream stream_;
  std::uint64_t num_draws_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>>
      visits_;  // site and number, of repeated ones
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace penstock
