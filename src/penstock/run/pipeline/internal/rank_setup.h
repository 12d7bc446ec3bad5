#pragma once

#include <memory>
#include <vector>

#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/schedule.h"
#include "penstock/run/pipeline/pipeline_schedule.h"
#include "penstock/run/threads/rank_threads.h"
#include "penstock/run/transport/rank_group.h"

namespace penstock {

// Options whose deadline all waits can count with. Throws ArgumentError if that is not positive.
ScheduleOptions checked(ScheduleOptions options);

// A program that ranks can run, proved to be valid for that many stages and microbatches.
Schedule make_program(Schedule schedule, Extent extent, const LowerOptions& options);

// How a schedule becomes the program of these stages.
LowerOptions lower_options(const ScheduleOptions& options, const StageList& stages);

// The ranks of `program` that run in this process. Throws ArgumentError if the group has another
// number of them.
std::vector<int> local_ranks_of(const ScheduleOptions& options, const Schedule& program);

// What connects all ranks, those that have `stages` and the others; `num_exchange_stages` is for
// messages beside those of the program.
std::unique_ptr<Fabric> connect(const ScheduleOptions& options, const Schedule& program,
                                const StageList& stages, Extent extent, int num_exchange_stages);

// Who is at work at the same time.
struct CoreUse {
  int num_threads = 1;    // of this process
  int num_processes = 1;  // with as many threads each, on the cores of this one
  int place = 0;          // of the first rank of this pipeline among all of these threads
};

// Of a pipeline whose ranks `num_local_ranks` are threads of this process, with its replicas.
CoreUse core_use_of(const ScheduleOptions& options, int num_local_ranks);

RankThreadOptions thread_options(const ScheduleOptions& options, const CoreUse& use);

}  // namespace penstock
