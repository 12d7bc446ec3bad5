#pragma once

#include "penstock/plan/generators/shape.h"
#include "penstock/plan/schedule/schedule.h"

namespace penstock {

// One function per built-in schedule; registry.h finds them by name. Each returns the compute
// order of all ranks, and throws ArgumentError when the schedule does not exist in that shape.
// Where torch.distributed.pipelining accepts a shape too, the orders are equal to the action.

// One stage per rank.
Schedule make_forward_only(const ScheduleShape& shape);
Schedule make_gpipe(const ScheduleShape& shape);
Schedule make_1f1b(const ScheduleShape& shape);
Schedule make_zb_h1(const ScheduleShape& shape);
Schedule make_zb_h2(const ScheduleShape& shape);

// Any number of stages per rank, in a looped placement.
Schedule make_looped_bfs(const ScheduleShape& shape);
Schedule make_interleaved_1f1b(const ScheduleShape& shape);
Schedule make_interleaved_zero_bubble(const ScheduleShape& shape);

// Two stages per rank, in a V placement.
Schedule make_zbv_zero_bubble(const ScheduleShape& shape);
Schedule make_dual_pipe_v(const ScheduleShape& shape);
Schedule make_v_half(const ScheduleShape& shape);
Schedule make_v_min(const ScheduleShape& shape);

// Odd layouts on two ranks that keep tests of schedule consumers honest.
Schedule make_v_shaped(const ScheduleShape& shape);
Schedule make_unbalanced(const ScheduleShape& shape);
Schedule make_with_w(const ScheduleShape& shape);

}  // namespace penstock
