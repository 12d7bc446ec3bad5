#include "tests/run/support/small_run.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "penstock/run/train/token_data.h"
#include "penstock/run/train/training_loss.h"

namespace penstock {

std::shared_ptr<const Dataset> pattern_data() {
  torch::Tensor tokens = torch::arange(400, torch::kInt).remainder(7).square().remainder(11);
  return std::make_shared<TokenData>(tokens, TokenDataOptions{.context = 6, .vocabulary = 11},
                                     "a pattern");
}

ModelOptions small_gpt() {
  return {.name = "gpt", .layers = 2, .width = 8, .heads = 2, .dropout = 0.1};
}

TrainerOptions small_trainer() {
  TrainerOptions options;
  options.batch = kSmallBatch;
  options.seed = kSmallSeed;
  options.learning_rate = {.peak = 0.02};
  options.clip = 0.5;
  return options;
}

SmallRun::SmallRun(const SmallRunOptions& options) : data(options.data) {
  const Batch batch = data->take(draw_samples(
      {.seed = kSmallSeed, .batch = kSmallBatch / options.num_replicas}, data->num_samples()));
  loss = make_loss("auto", batch.targets);
  model = make_run_model(options.model, *data, kSmallBatch / options.num_microbatches, kSmallSeed);
  const PlanRequest request{.schedule = options.schedule,
                            .num_ranks = options.num_ranks,
                            .num_microbatches = options.num_microbatches / options.num_replicas};
  World* const world = options.processes.world;
  const std::string topic =
      world == nullptr ? "" : fmt::format("plan/{}", world->next_count("plan"));
  const std::string plan = decide_for_all(
      options.processes, topic, [&] { return write_plan(make_plan(model, request, loss, batch)); });
  pipeline = std::make_unique<RunPipeline>(model, read_plan(plan),
                                           RunPipelineOptions{.loss = loss,
                                                              .processes = options.processes,
                                                              .num_replicas = options.num_replicas,
                                                              .is_sharded = options.is_sharded});
  trainer = std::make_unique<Trainer>(*pipeline, *data, small_trainer());
}

std::vector<double> SmallRun::losses_of(int num_steps) const {
  std::vector<double> losses;
  for (int step = 0; step < num_steps; ++step) losses.push_back(trainer->step().loss);
  return losses;
}

}  // namespace penstock
