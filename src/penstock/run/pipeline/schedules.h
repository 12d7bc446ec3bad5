#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "penstock/run/pipeline/pipeline_schedule.h"

namespace penstock {

// A pipeline that runs a built-in schedule, by its name in penstock/plan/generators/registry.h.
class BuiltInSchedule : public PipelineSchedule {
 public:
  BuiltInSchedule(std::string_view name, const StageList& stages, const ScheduleOptions& options);
};

// The schedules under the names that torch.distributed.pipelining gives them.
class ScheduleGPipe : public BuiltInSchedule {
 public:
  ScheduleGPipe(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("GPipe", stages, options) {}
};
class Schedule1F1B : public BuiltInSchedule {
 public:
  Schedule1F1B(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("1F1B", stages, options) {}
};
class ScheduleInterleaved1F1B : public BuiltInSchedule {
 public:
  ScheduleInterleaved1F1B(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("Interleaved1F1B", stages, options) {}
};
class ScheduleLoopedBFS : public BuiltInSchedule {
 public:
  ScheduleLoopedBFS(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("LoopedBFS", stages, options) {}
};
class ScheduleInterleavedZeroBubble : public BuiltInSchedule {
 public:
  ScheduleInterleavedZeroBubble(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("InterleavedZeroBubble", stages, options) {}
};
class ScheduleZBVZeroBubble : public BuiltInSchedule {
 public:
  ScheduleZBVZeroBubble(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("ZBVZeroBubble", stages, options) {}
};
class ScheduleDualPipeV : public BuiltInSchedule {
 public:
  ScheduleDualPipeV(const StageList& stages, const ScheduleOptions& options)
      : BuiltInSchedule("DualPipeV", stages, options) {}
};

using ScheduleFactory = std::function<std::unique_ptr<PipelineSchedule>(
    const StageList& stages, const ScheduleOptions& options)>;

// Finds a schedule by name, with or without "Schedule" in front, in any case. Throws ArgumentError,
// with the nearest name, if there is none.
ScheduleFactory get_schedule_class(std::string_view name);

}  // namespace penstock
