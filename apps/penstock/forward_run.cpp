#include "forward_run.h"

#include <exception>
#include <optional>

#include "json_config.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "prepare_process.h"
#include "program.h"

namespace penstock {

ForwardRun::ForwardRun(CLI::App& command, RunFlags& flags, int num_microbatches) {
  prepare_process();
  if (!flags.config.empty()) apply_config_file(command, flags.config);
  find_launched(flags);
  std::optional<std::filesystem::path> checkpoint;
  if (!flags.checkpoint.empty()) {
    checkpoint = checkpoint_to_use(flags);
    apply_checkpoint(command, *checkpoint);
  }
  setup_ = prepare_run(command, flags);
  ranks_ = std::make_unique<RunRanks>(flags, setup_);
  pipeline_ = std::make_unique<RunPipeline>(setup_.model, setup_.plan,
                                            RunPipelineOptions{.loss = setup_.loss,
                                                               .purpose = RunPurpose::Evaluation,
                                                               .num_microbatches = num_microbatches,
                                                               .processes = ranks_->processes()});
  if (checkpoint) {
    load_checkpoint(*checkpoint, {rank_state(pipeline_->stages())},
                    {.needs_all = !flags.uses_processes()});
  }
}

Answer run_as_rank(const RunFlags& flags, const std::function<Answer()>& work) {
  try {
    return work();
  } catch (const FailedRun&) {
    if (flags.is_first_process()) throw;
    return Answer::No;
  } catch (const std::exception&) {
    if (flags.is_first_process()) throw;
    return Answer::WrongQuestion;
  }
}

}  // namespace penstock
