#pragma once

#include <functional>
#include <memory>

#include <CLI/CLI.hpp>

#include "commands.h"
#include "run_flags.h"

namespace penstock {

// A pipeline that runs forwards alone, with the parameters of a checkpoint or new ones.
class ForwardRun {
 public:
  // Reads the config and the checkpoint that `flags` name; `flags` are bound to options of
  // `command`. Throws Error for what is wrong with them.
  ForwardRun(CLI::App& command, RunFlags& flags, int num_microbatches);

  const RunSetup& setup() const { return setup_; }
  RunPipeline& pipeline() { return *pipeline_; }
  // To be called at the end, by all processes.
  void end() { ranks_->wait_for_all(); }

 private:
  RunSetup setup_;
  std::unique_ptr<RunRanks> ranks_;
  std::unique_ptr<RunPipeline> pipeline_;
};

// What `work` answers. A process that another one of this program has started is silent about
// errors: that one tells for all, and gets to know what kept a process from joining. Ranks that
// others have started speak for themselves.
Answer run_as_rank(const RunFlags& flags, const std::function<Answer()>& work);

}  // namespace penstock
