#include "tests/run/support/named_shapes.h"

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "penstock/plan/schedule/csv.h"

namespace penstock {

std::vector<NamedShape> training_shapes() {
  std::vector<NamedShape> shapes;
  for (const ScheduleFamily& family : schedule_families()) {
    const std::string name(family.name);
    if (name == "ForwardOnly") continue;
    for (const auto& [num_ranks, num_microbatches] :
         std::vector<std::pair<int, int>>{{1, 3}, {2, 1}, {2, 5}, {3, 6}, {4, 8}}) {
      if (family.num_ranks != ScheduleFamily::kAnyNumber && family.num_ranks != num_ranks) continue;
      for (const int stages_per_rank : {1, 2, 3}) {
        const bool is_default = stages_per_rank == family.default_stages_per_rank;
        const bool is_allowed = stages_per_rank >= family.min_stages_per_rank &&
                                (family.max_stages_per_rank == ScheduleFamily::kAnyNumber ||
                                 stages_per_rank <= family.max_stages_per_rank);
        // Deep layouts on two ranks only, to keep the time in bounds.
        if (!is_default && (!is_allowed || num_ranks != 2)) continue;
        shapes.push_back({name, num_ranks, stages_per_rank, num_microbatches});
      }
    }
  }
  return shapes;
}

Schedule make_schedule(const NamedShape& shape) {
  return make_schedule(shape.schedule, {.num_ranks = shape.num_ranks,
                                        .num_microbatches = shape.num_microbatches,
                                        .stages_per_rank = shape.stages_per_rank});
}

std::vector<std::pair<std::string, Schedule>> custom_schedules() {
  const Schedule lowered =
      lower(make_schedule("ZBVZeroBubble", {.num_ranks = 2, .num_microbatches = 4}));
  const Schedule overlaps = make_schedule("DualPipeV", {.num_ranks = 2, .num_microbatches = 6});
  return {{"FromCsv", read_csv("0F0,0F1,,2F0,2I0,2F1,0I0,2I1,2W0,0I1,0W0,2W1,0W1\n"
                               ",1F0,1F1,,1I0,1W0,1B1\n",
                               "custom.csv")},
          {"Lowered", read_csv(write_csv(lowered), "lowered.csv")},
          {"SplitOverlaps", lower(overlaps, {.split_overlaps = true})}};
}

}  // namespace penstock
