#pragma once

namespace penstock {

// What a generator is asked for. Counts start at 1; stages per rank may be left to the schedule.
struct ScheduleShape {
  static constexpr int kScheduleDefault = 0;

  int num_ranks = 1;
  int num_microbatches = 1;
  int stages_per_rank = kScheduleDefault;

  int num_stages() const { return num_ranks * stages_per_rank; }
};

}  // namespace penstock
