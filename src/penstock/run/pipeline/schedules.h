#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// A pipeline that runs a built-in schedule, by its name in penstock/plan/generators/registry.h.
class BuiltInSchedule : public PipelineSchedule {
 public:
  BuiltInSchedule(std::string_view name, StageList stages, ScheduleOptions options);
};

// The schedules under the names that torch.distributed.pipelining gives them.
class ScheduleGPipe : public BuiltInSchedule {
 public:
  ScheduleGPipe(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("GPipe", std::move(stages), std::move(options)) {}
};
class Schedule1F1B : public BuiltInSchedule {
 public:
  Schedule1F1B(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("1F1B", std::move(stages), std::move(options)) {}
};
class ScheduleInterleaved1F1B : public BuiltInSchedule {
 public:
  ScheduleInterleaved1F1B(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("Interleaved1F1B", std::move(stages), std::move(options)) {}
};
class ScheduleLoopedBFS : public BuiltInSchedule {
 public:
  ScheduleLoopedBFS(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("LoopedBFS", std::move(stages), std::move(options)) {}
};
class ScheduleInterleavedZeroBubble : public BuiltInSchedule {
 public:
  ScheduleInterleavedZeroBubble(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("InterleavedZeroBubble", std::move(stages), std::move(options)) {}
};
class ScheduleZBVZeroBubble : public BuiltInSchedule {
 public:
  ScheduleZBVZeroBubble(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("ZBVZeroBubble", std::move(stages), std::move(options)) {}
};
class ScheduleDualPipeV : public BuiltInSchedule {
 public:
  ScheduleDualPipeV(StageList stages, ScheduleOptions options)
      : BuiltInSchedule("DualPipeV", std::move(stages), std::move(options)) {}
};

using ScheduleFactory =
    std::function<std::unique_ptr<PipelineSchedule>(StageList stages, ScheduleOptions options)>;

// Finds a schedule by name, with or without "Schedule" in front, in any case. Throws ArgumentError,
// with the nearest name, if there is none.
ScheduleFactory get_schedule_class(std::string_view name);

}  // namespace penstock
