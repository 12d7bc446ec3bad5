#include "penstock/plan/schedule/json.h"

#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "penstock/plan/schedule/internal/json_reader.h"
#include "penstock/plan/schedule/internal/parse_failure.h"
#include "penstock/plan/schedule/placement.h"

namespace penstock {
namespace {

// A single action like 2000000000F0 makes two thousand million stages. Beyond this many the
// placement is not written out: the file stays in proportion to its actions.
constexpr int kMostPlacedStages = 65536;

std::string placement_text(const Schedule& schedule, int num_stages) {
  if (num_stages > kMostPlacedStages) return "null";
  const Placement placement = placement_of(schedule, num_stages);
  std::string text = "[";
  for (const int rank : placement.ranks()) {
    if (text.size() > 1) text += ", ";
    text += rank == Placement::kUnplaced ? "null" : fmt::to_string(rank);
  }
  return text + "]";
}

// Action texts are made of letters, digits and "_;()", so nothing in them needs escaping.
void append_rank(const std::vector<Action>& actions, std::string& text) {
  text += "    [";
  for (std::size_t step = 0; step < actions.size(); ++step) {
    text += step > 0 ? ", \"" : "\"";
    append_text(actions[step], text);
    text += '"';
  }
  text += ']';
}

}  // namespace

std::string write_json(const Schedule& schedule) {
  const Extent extent = extent_of(schedule);
  std::string text;
  fmt::format_to(std::back_inserter(text),
                 "{{\n"
                 "  \"format\": \"{}\",\n"
                 "  \"version\": {},\n"
                 "  \"form\": \"{}\",\n"
                 "  \"num_ranks\": {},\n"
                 "  \"num_stages\": {},\n"
                 "  \"num_microbatches\": {},\n"
                 "  \"placement\": {},\n"
                 "  \"ranks\": [\n",
                 kJsonFormat, kJsonVersion, is_lowered(schedule) ? "lowered" : "compute",
                 schedule.num_ranks(), extent.num_stages, extent.num_microbatches,
                 placement_text(schedule, extent.num_stages));
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    if (rank > 0) text += ",\n";
    append_rank(schedule.ranks[rank], text);
  }
  text += "\n  ]\n}\n";
  return text;
}

Schedule read_json(std::string_view text, const std::string& source_name) {
  return JsonReader(checked_file_text(text, source_name), source_name).read();
}

}  // namespace penstock
