#include "penstock/run/pipeline/schedules.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/generators/registry.h"

namespace penstock {
namespace {

// Of the whole pipeline. A process that has some of the stages asks one of them.
int num_stages_of(const StageList& stages, const ScheduleOptions& options) {
  const bool can_ask = options.group != nullptr && !stages.empty() && stages.front() != nullptr;
  return can_ask ? stages.front()->num_stages() : static_cast<int>(stages.size());
}

Schedule make_order(std::string_view name, const StageList& stages,
                    const ScheduleOptions& options) {
  const ScheduleFamily& family = schedule_family(name);
  ScheduleShape shape{.num_ranks = options.num_ranks, .num_microbatches = options.num_microbatches};
  if (family.num_ranks != ScheduleFamily::kAnyNumber) {
    shape.num_ranks = family.num_ranks;
    return make_schedule(name, shape);  // its layout is fixed
  }
  if (options.group != nullptr && shape.num_ranks == 0)
    shape.num_ranks = options.group->num_ranks();
  const int num_stages = num_stages_of(stages, options);
  if (num_stages == 0) return {};  // the pipeline will complain
  if (shape.num_ranks == 0) shape.num_ranks = num_stages / family.default_stages_per_rank;
  if (shape.num_ranks < 1 || num_stages % shape.num_ranks != 0) {
    throw ArgumentError(fmt::format(
        "{} cannot be spread evenly over {}; {} takes {} per rank unless num_ranks says otherwise",
        counted(num_stages, "stage", "stages"), counted(shape.num_ranks, "rank", "ranks"),
        family.name, counted(family.default_stages_per_rank, "stage", "stages")));
  }
  shape.stages_per_rank = num_stages / shape.num_ranks;
  return make_schedule(name, shape);
}

}  // namespace

BuiltInSchedule::BuiltInSchedule(std::string_view name, const StageList& stages,
                                 const ScheduleOptions& options)
    // Copied, because nothing says which of the arguments is made first.
    : PipelineSchedule(stages, make_order(name, stages, options), options) {}

ScheduleFactory get_schedule_class(std::string_view name) {
  const std::string family(schedule_family(name).name);
  return [family](const StageList& stages, const ScheduleOptions& options) {
    return std::make_unique<BuiltInSchedule>(family, stages, options);
  };
}

}  // namespace penstock
