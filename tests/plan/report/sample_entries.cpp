#include "tests/plan/report/sample_entries.h"

#include <utility>

#include <fmt/format.h>

#include "penstock/plan/generators/registry.h"
#include "penstock/plan/passes/lower.h"
#include "tests/support/shapes.h"

namespace penstock::testing {
namespace {

Duration milliseconds(int count) {
  return std::chrono::milliseconds(count);
}

void add_entries(const ScheduleFamily& family, const ScheduleShape& shape,
                 std::vector<ReportEntry>& entries) {
  const Schedule program = lower(family.make(shape));
  const int num_stages = extent_of(program).num_stages;
  const auto add = [&](std::string_view costs_name, const CostModel& costs) {
    entries.push_back(make_report_entry(fmt::format("{}, {}", describe(family, shape), costs_name),
                                        program, costs));
  };
  add("equal costs", CostModel::uniform({.forward = milliseconds(1),
                                         .input_backward = milliseconds(1),
                                         .weight_backward = milliseconds(1)}));
  add("buffered", elaborate_costs(num_stages, SendMode::Buffered));
  add("rendezvous", elaborate_costs(num_stages, SendMode::Rendezvous));
  entries.push_back(make_measured_sample(fmt::format("{}, measured", describe(family, shape)),
                                         program, elaborate_costs(num_stages, SendMode::Buffered)));
}

}  // namespace

ReportEntry make_entry(const std::string& name, const ScheduleShape& shape,
                       const CostModel& costs) {
  return make_report_entry(name, lower(make_schedule(name, shape)), costs);
}

CostModel elaborate_costs(int num_stages, SendMode sends) {
  CostModel costs;
  for (int stage = 0; stage < num_stages; ++stage) {
    costs.stages.push_back({.forward = Duration(1000 + 137 * stage),
                            .input_backward = Duration(900 + 71 * (stage % 3)),
                            .weight_backward = Duration(800 - 13 * (stage % 5)),
                            .full_backward = Duration(1650 + 71 * (stage % 4)),
                            .unshard = Duration(301 + stage),
                            .reduce_grad = Duration(577),
                            .activation_bytes = 1000 + stage,
                            .weight_gradient_bytes = stage % 2 == 0 ? 400 : 1500,
                            .parameter_bytes = 5000,
                            .output_bytes = 321 + stage,
                            .input_gradient_bytes = 123});
  }
  costs.hop_latency = Duration(250);
  costs.bytes_per_second = 3e9;
  costs.overlap_factor = 0.87;
  costs.sends = sends;
  return costs;
}

ReportEntry make_measured_sample(const std::string& name, const Schedule& program,
                                 const CostModel& costs) {
  std::vector<std::vector<ActionTime>> times = simulate(program, costs).times;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const Duration skew(13 * static_cast<int>(rank % 3));
    for (std::size_t step = 0; step < times[rank].size(); ++step) {
      ActionTime& time = times[rank][step];
      const ActionKind kind = program.ranks[rank][step].kind;
      time = {.start = time.start + skew, .end = time.end + skew};
      if (is_compute(kind)) time.start += (time.end - time.start) / 8;
      if (is_send(kind)) time.end += Duration(7);
    }
  }
  Timeline timeline = make_timeline(program, std::move(times), costs);
  return make_measured_entry(name, program, costs, std::move(timeline));
}

std::vector<ReportEntry> sample_entries() {
  std::vector<ReportEntry> entries;
  for (const ScheduleFamily& family : schedule_families()) {
    const std::vector<ScheduleShape> shapes =
        shapes_of(family, {.num_ranks = 4, .stages_per_rank = 3, .num_microbatches = 9});
    for (std::size_t index = 0; index < shapes.size(); index += 1 + shapes.size() / 3) {
      add_entries(family, shapes[shapes.size() - 1 - index], entries);
    }
  }
  return entries;
}

}  // namespace penstock::testing
