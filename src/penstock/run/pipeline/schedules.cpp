#include "penstock/run/pipeline/schedules.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/generators/registry.h"

namespace penstock {
namespace {

Schedule make_order(std::string_view name, const StageList& stages,
                    const ScheduleOptions& options) {
  const ScheduleFamily& family = schedule_family(name);
  ScheduleShape shape{.num_ranks = options.num_ranks, .num_microbatches = options.num_microbatches};
  if (family.num_ranks != ScheduleFamily::kAnyNumber) {
    shape.num_ranks = family.num_ranks;
    return make_schedule(name, shape);  // its layout is fixed
  }
  const int num_stages = static_cast<int>(stages.size());
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

BuiltInSchedule::BuiltInSchedule(std::string_view name, StageList stages, ScheduleOptions options)
    : PipelineSchedule(stages, make_order(name, stages, options), std::move(options)) {}

ScheduleFactory get_schedule_class(std::string_view name) {
  const std::string family(schedule_family(name).name);
  return [family](StageList stages, ScheduleOptions options) {
    return std::make_unique<BuiltInSchedule>(family, std::move(stages), std::move(options));
  };
}

}  // namespace penstock
