#include "penstock/plan/report/html_report.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/report/internal/description.h"
#include "penstock/plan/report/internal/escape.h"
#include "penstock/plan/report/internal/page_sources.h"
#include "penstock/plan/schedule/csv.h"

namespace penstock {
namespace {

template <typename... Arguments>
void append(std::string& text, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Arguments>(arguments)...);
}

void append_stage(const StageCost& cost, std::string& text) {
  append(text,
         "{{\"forward\": {}, \"input_backward\": {}, \"weight_backward\": {}, "
         "\"full_backward\": {}, \"unshard\": {}, \"reduce_grad\": {}, \"activation_bytes\": {}, "
         "\"weight_gradient_bytes\": {}, \"parameter_bytes\": {}, \"output_bytes\": {}, "
         "\"input_gradient_bytes\": {}}}",
         cost.forward.count(), cost.input_backward.count(), cost.weight_backward.count(),
         cost.full_backward.count(), cost.unshard.count(), cost.reduce_grad.count(),
         cost.activation_bytes, cost.weight_gradient_bytes, cost.parameter_bytes, cost.output_bytes,
         cost.input_gradient_bytes);
}

void append_costs(const CostModel& costs, std::string& text) {
  text += "{\"stages\": [";
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    if (stage > 0) text += ", ";
    append_stage(costs.stages[stage], text);
  }
  append(text,
         "], \"hop_latency\": {}, \"bytes_per_second\": {}, \"overlap_factor\": {}, "
         "\"sends\": \"{}\"}}",
         costs.hop_latency.count(), costs.bytes_per_second, costs.overlap_factor,
         costs.sends == SendMode::Rendezvous ? "rendezvous" : "buffered");
}

// One value per rank, as a JSON array.
void append_per_rank(std::string_view name, const Timeline& timeline,
                     const std::function<std::string(const RankUsage&)>& value, std::string& text) {
  std::vector<std::string> values;
  for (const RankUsage& usage : timeline.ranks) values.push_back(value(usage));
  append(text, ", \"{}\": [{}]", name, fmt::join(values, ", "));
}

// What the page compares its own figures with.
void append_figures(const Timeline& timeline, std::string& text) {
  append(text,
         "{{\"makespan\": {}, \"longest_span\": {}, \"makespan_bubble\": {}, \"span_bubble\": {}",
         timeline.makespan.count(), timeline.longest_span.count(), timeline.makespan_bubble,
         timeline.span_bubble);
  append_per_rank(
      "busy", timeline, [](const RankUsage& usage) { return fmt::to_string(usage.busy.count()); },
      text);
  append_per_rank(
      "idle", timeline,
      [](const RankUsage& usage) {
        std::vector<std::int64_t> times;
        for (const Duration time : usage.idle) times.push_back(time.count());
        return fmt::format("[{}]", fmt::join(times, ", "));
      },
      text);
  append_per_rank(
      "peak_activations", timeline,
      [](const RankUsage& usage) { return fmt::to_string(usage.peak_activations); }, text);
  append_per_rank(
      "peak_bytes", timeline,
      [](const RankUsage& usage) { return fmt::to_string(usage.peak_bytes); }, text);
  text += "}";
}

// Start and end of every action of a rank, in turn.
void append_measured_times(const Timeline& timeline, std::string& text) {
  text += ",\n\"measured_times\": [";
  for (std::size_t rank = 0; rank < timeline.times.size(); ++rank) {
    text += rank == 0 ? "[" : ",\n[";
    std::string_view comma;
    for (const ActionTime& time : timeline.times[rank]) {
      append(text, "{}{},{}", std::exchange(comma, ","), time.start.count(), time.end.count());
    }
    text += "]";
  }
  text += "]";
}

void append_entry(const ReportEntry& entry, std::string& text) {
  append(text,
         "{{\"name\": {}, \"shape\": {}, \"cost_text\": {},\n\"costs\": ", quote_json(entry.name),
         quote_json(describe_shape(entry.program)), quote_json(describe_costs(entry.costs)));
  append_costs(entry.costs, text);
  text += ",\n\"figures\": ";
  append_figures(entry.timeline, text);
  if (entry.is_measured) append_measured_times(entry.timeline, text);
  append(text, ",\n\"program\": {}}}", quote_json(write_csv(entry.program)));
}

std::string report_data(std::span<const ReportEntry> entries) {
  std::string text = "{\"entries\": [\n";
  for (std::size_t index = 0; index < entries.size(); ++index) {
    if (index > 0) text += ",\n";
    append_entry(entries[index], text);
  }
  return text + "\n]}";
}

std::string default_title(std::span<const ReportEntry> entries) {
  const std::string shape = describe_shape(entries.front().program);
  if (entries.size() == 1) return fmt::format("{}: {}", entries.front().name, shape);
  std::vector<std::string_view> names;
  for (const ReportEntry& entry : entries) names.push_back(entry.name);
  const int num_ranks = entries.front().program.num_ranks();
  const int num_microbatches = extent_of(entries.front().program).num_microbatches;
  const bool have_one_shape = std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.program.num_ranks() == num_ranks &&
           extent_of(entry.program).num_microbatches == num_microbatches;
  });
  if (!have_one_shape) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}: {}, {}", fmt::join(names, ", "), counted(num_ranks, "rank", "ranks"),
                     counted(num_microbatches, "microbatch", "microbatches"));
}

// The page with each {{name}} replaced; what is filled in is not searched again.
std::string fill(std::string_view page,
                 std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  std::string text;
  while (true) {
    const std::size_t begin = page.find("{{");
    const std::size_t end = page.find("}}", begin);
    if (begin == std::string_view::npos || end == std::string_view::npos) break;
    const std::string_view name = page.substr(begin + 2, end - begin - 2);
    text += page.substr(0, begin);
    for (const auto& [key, value] : values) {
      if (key == name) text += value;
    }
    page.remove_prefix(end + 2);
  }
  return text.append(page);
}

}  // namespace

std::string write_html_report(std::span<const ReportEntry> entries, const ReportOptions& options) {
  if (entries.empty()) throw ArgumentError("a report needs at least one schedule");
  const std::string title = options.title.empty() ? default_title(entries) : options.title;
  return fill(kPageTemplate, {{"title", escape_markup(title)},
                              {"style", kPageStyle},
                              {"script", kPageScript},
                              {"data", report_data(entries)}});
}

}  // namespace penstock
