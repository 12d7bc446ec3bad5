#include <string_view>

#include "penstock/plan/generators/internal/trim.h"
#include "penstock/plan/generators/registry.h"
#include "penstock/plan/generators/schedules.h"
#include "penstock/plan/schedule/csv.h"

namespace penstock {
namespace {

// `pattern`, a CSV order of its first `pattern_size` microbatches, run again and again until
// `num_microbatches` have had their turn.
Schedule repeat_pattern(std::string_view pattern, int pattern_size, int num_microbatches) {
  const Schedule once = read_csv(pattern, "pattern");
  Schedule repeated;
  for (const std::vector<Action>& actions : once.ranks) {
    std::vector<Action>& list = repeated.ranks.emplace_back();
    for (int first = 0; first < num_microbatches; first += pattern_size) {
      for (Action action : actions) {
        if (action.kind != ActionKind::Idle) action.microbatch += first;
        list.push_back(action);
      }
    }
  }
  return keep_microbatches(repeated, num_microbatches, Trim::ToIdle);
}

}  // namespace

Schedule make_v_shaped(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("VShaped", requested);
  return repeat_pattern(
      "0F0,,,3F0,3B0,,,0B0\n"
      ",1F0,2F0,,,2B0,1B0,\n",
      1, shape.num_microbatches);
}

Schedule make_unbalanced(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("Unbalanced", requested);
  return repeat_pattern(
      "0F0,1F0,,,4F0,4B0,,,1B0,0B0\n"
      ",,2F0,3F0,,,3B0,2B0,,\n",
      1, shape.num_microbatches);
}

Schedule make_with_w(const ScheduleShape& requested) {
  const ScheduleShape shape = resolve_shape("WithW", requested);
  return repeat_pattern(
      "0F0,0F1,2F0,2F1,,2I0,2W0,0I0,2I1,0W0,0I1,2W1,0W1\n"
      ",1F0,1F1,3F0,3I0,3F1,1I0,3I1,3W0,1I1,1W0,3W1,1W1\n",
      2, shape.num_microbatches);
}

}  // namespace penstock
