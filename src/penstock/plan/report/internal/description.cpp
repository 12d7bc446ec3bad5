#include "penstock/plan/report/internal/description.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "penstock/base/text.h"

namespace penstock {
namespace {

std::string time_range(std::string_view label, const CostModel& costs, Duration StageCost::*time) {
  const auto by_time = [time](const StageCost& left, const StageCost& right) {
    return left.*time < right.*time;
  };
  const auto [least, most] = std::minmax_element(costs.stages.begin(), costs.stages.end(), by_time);
  if ((*least).*time == (*most).*time) {
    return fmt::format("{} {} ms", label, milliseconds_text((*least).*time));
  }
  return fmt::format("{} {} to {} ms", label, milliseconds_text((*least).*time),
                     milliseconds_text((*most).*time));
}

bool has_time(const CostModel& costs, Duration StageCost::*time) {
  return std::any_of(costs.stages.begin(), costs.stages.end(),
                     [time](const StageCost& cost) { return cost.*time > Duration::zero(); });
}

bool has_separate_full_backward(const CostModel& costs) {
  return std::any_of(costs.stages.begin(), costs.stages.end(), [](const StageCost& cost) {
    return cost.full_backward != cost.input_backward + cost.weight_backward;
  });
}

}  // namespace

std::string milliseconds_text(Duration time) {
  constexpr std::int64_t kPerMillisecond = 1'000'000;
  std::string text =
      fmt::format("{}.{:06}", time.count() / kPerMillisecond, time.count() % kPerMillisecond);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string percent_text(double share) {
  return fmt::format("{:.2f} %", share * 100);
}

std::string describe_shape(const Schedule& program) {
  const Extent extent = extent_of(program);
  return fmt::format("{}, {}, {}", counted(program.num_ranks(), "rank", "ranks"),
                     counted(extent.num_stages, "stage", "stages"),
                     counted(extent.num_microbatches, "microbatch", "microbatches"));
}

std::string describe_costs(const CostModel& costs) {
  std::string text = fmt::format("{}, {}, {}", time_range("F", costs, &StageCost::forward),
                                 time_range("I", costs, &StageCost::input_backward),
                                 time_range("W", costs, &StageCost::weight_backward));
  if (has_separate_full_backward(costs)) {
    text += ", " + time_range("B", costs, &StageCost::full_backward);
  }
  if (has_time(costs, &StageCost::unshard)) {
    text += ", " + time_range("UNSHARD", costs, &StageCost::unshard);
  }
  if (has_time(costs, &StageCost::reduce_grad)) {
    text += ", " + time_range("REDUCE_GRAD", costs, &StageCost::reduce_grad);
  }
  text += fmt::format(", hop {} ms", milliseconds_text(costs.hop_latency));
  if (costs.bytes_per_second > 0) text += fmt::format(", {:g} bytes/s", costs.bytes_per_second);
  if (costs.overlap_factor != 1) text += fmt::format(", overlap x {:g}", costs.overlap_factor);
  if (costs.sends == SendMode::Rendezvous) text += ", rendezvous sends";
  return text;
}

std::string describe_result(const ReportEntry& entry) {
  return fmt::format(
      "{}makespan {} ms, bubble {} (makespan), {} (span)", entry.is_measured ? "measured: " : "",
      milliseconds_text(entry.timeline.makespan), percent_text(entry.timeline.makespan_bubble),
      percent_text(entry.timeline.span_bubble));
}

}  // namespace penstock
