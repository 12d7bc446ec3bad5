#include "penstock/run/pipeline/internal/rank_setup.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/prover/check.h"
#include "penstock/run/pipeline/internal/stage_list.h"
#include "penstock/run/stage/stage_layout.h"
#include "penstock/run/threads/pinned_thread.h"
#include "penstock/run/transport/in_process/in_process_hub.h"

namespace penstock {

ScheduleOptions checked(ScheduleOptions options) {
  if (options.deadline <= std::chrono::nanoseconds::zero()) {
    throw ArgumentError(
        fmt::format("ScheduleOptions::deadline is {} s, so that every wait would fail at once; "
                    "expected more than 0",
                    std::chrono::duration<double>(options.deadline).count()));
  }
  options.deadline = std::min(options.deadline, kLongestDeadline);
  return options;
}

Schedule make_program(Schedule schedule, Extent extent, const LowerOptions& options) {
  Schedule program = is_lowered(schedule) ? std::move(schedule) : lower(schedule, options);
  require_valid(program, {.extent = extent});
  return program;
}

// With replicas, stages of other processes may be sharded, and all processes need one program.
LowerOptions lower_options(const ScheduleOptions& options, const StageList& stages) {
  const bool is_sharded = std::any_of(stages.begin(), stages.end(), [](const auto& stage) {
    return stage->parameter_actions() != nullptr && stage->parameter_actions()->is_sharded();
  });
  return {.sharding = is_sharded || options.data_group != nullptr,
          .max_active_stages = options.max_active_stages};
}

std::vector<int> local_ranks_of(const ScheduleOptions& options, const Schedule& program) {
  if (options.group == nullptr) {
    std::vector<int> all(program.ranks.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  if (options.group->num_ranks() != program.num_ranks()) {
    throw ArgumentError(fmt::format("the schedule is for {}, but the group has {}",
                                    counted(program.num_ranks(), "rank", "ranks"),
                                    options.group->num_ranks()));
  }
  return options.group->local_ranks();
}

std::unique_ptr<Fabric> connect(const ScheduleOptions& options, const Schedule& program,
                                const StageList& stages, Extent extent, int num_exchange_stages) {
  if (options.group != nullptr) {
    return options.group->connect(program, {.extent = extent,
                                            .num_exchange_stages = num_exchange_stages,
                                            .deadline = options.deadline,
                                            .stage_layouts = known_layouts(stages),
                                            .keywords = keywords_of(stages)});
  }
  extent.num_stages += num_exchange_stages;
  return std::make_unique<InProcessHub>(program.num_ranks(), extent,
                                        wait_policy_for(program.num_ranks(), options.deadline));
}

CoreUse core_use_of(const ScheduleOptions& options, int num_local_ranks) {
  SharedCores processes;
  if (options.group != nullptr) processes = options.group->processes_on_cores();
  int num_replicas = 1;  // in this process
  int replica = 0;
  if (const RankGroup* const replicas = options.data_group.get(); replicas != nullptr) {
    num_replicas = replicas->num_ranks_in_process();
    if (num_replicas > 1) replica = replicas->local_ranks().front();
    const SharedCores others = replicas->processes_on_cores();
    if (others.num_processes > processes.num_processes) processes = others;
  }
  return {.num_threads = num_replicas * num_local_ranks,
          .num_processes = processes.num_processes,
          .place = (processes.place * num_replicas + replica) * num_local_ranks};
}

RankThreadOptions thread_options(const ScheduleOptions& options, const CoreUse& use) {
  const int num_busy = use.num_threads * use.num_processes;
  const int num_cores = static_cast<int>(allowed_cores().size());
  // Who started the processes may have divided the threads among them already, or their cores.
  int share = at::get_num_threads() / use.num_threads;
  if (use.num_processes > 1) {
    share = std::min(share, num_cores / num_busy);
  }
  return {.wait = wait_policy_for(num_busy, options.deadline),
          .intra_op_threads =
              options.intra_op_threads > 0 ? options.intra_op_threads : std::max(1, share),
          .shares_cores = use.num_processes > 1,
          .pins_threads = options.pins_threads && num_busy <= num_cores,
          .first_core = use.place};
}

}  // namespace penstock
