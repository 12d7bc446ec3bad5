#include "forward_run.h"

#include <exception>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "checkpoint_note.h"
#include "json_config.h"
#include "penstock/base/error.h"
#include "penstock/plan/prover/check.h"
#include "penstock/run/checkpoint/load_checkpoint.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/processes/group_error.h"
#include "penstock/run/world/world.h"
#include "prepare_process.h"
#include "program.h"

namespace penstock {
namespace {

// A failure over several processes takes a line for each of them.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (const char letter : text) {
    if (letter == '\n') {
      line += ';';
    } else if (letter != ' ' || !line.ends_with(' ')) {
      line += letter;
    }
  }
  return line;
}

// What an error says, and whose it is if this is one of several that others have started.
std::string by_rank(const RunFlags& flags, const std::string& text) {
  if (!flags.launched || flags.launched->size == 1) return text;
  return fmt::format("rank {}: {}", flags.launched->rank, text);
}

// Nobody notices what happens to a process before it has joined, so it says that.
void tell_first_process(const RunFlags& flags, const std::exception& error) {
  if (flags.sibling.has_joined) return;
  try {
    refuse_world({.rank = flags.sibling.rank,
                  .size = flags.num_processes(),
                  .store_file = flags.sibling.store},
                 fmt::format("rank {}: {}", flags.sibling.rank, cause_of(error)));
  } catch (const std::exception&) {
    return;  // the first process will see that this one has ended
  }
}

Answer run_silently(const RunFlags& flags, const std::function<Answer()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    tell_first_process(flags, error);
    return Answer::No;
  }
}

}  // namespace

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
  try {
    pipeline_ =
        std::make_unique<RunPipeline>(setup_.model, setup_.plan,
                                      RunPipelineOptions{.loss = setup_.loss,
                                                         .purpose = RunPurpose::Evaluation,
                                                         .num_microbatches = num_microbatches,
                                                         .processes = ranks_->processes(),
                                                         .deadline = flags.deadline()});
    if (checkpoint) {
      load_checkpoint(*checkpoint, {rank_state(pipeline_->stages())},
                      {.needs_all = !flags.uses_processes()});
    }
  } catch (const std::exception& error) {
    ranks_->tell_failure(error);
    throw;
  }
}

Answer run_as_rank(const RunFlags& flags, const std::function<Answer()>& work) {
  if (flags.sibling.rank != 0) return run_silently(flags, work);
  try {
    return work();
  } catch (const FailedRun& error) {
    throw FailedRun(by_rank(flags, in_one_line(error.what())));
  } catch (const GroupError& error) {
    throw FailedRun(by_rank(flags, in_one_line(error.what())));
  } catch (const ScheduleError&) {
    throw;
  } catch (const Error& error) {
    throw Error(by_rank(flags, error.what()));
  }
}

}  // namespace penstock
