// Writes a report about many schedules, and what the simulator says about each of them in full:
//   write_sample_page report.html expected.json
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

#include "penstock/plan/report/html_report.h"
#include "tests/plan/report/sample_entries.h"

namespace penstock {
namespace {

nlohmann::json times_of(const std::vector<ActionTime>& times) {
  nlohmann::json list = nlohmann::json::array();
  for (const ActionTime& time : times) {
    list.push_back({time.start.count(), time.end.count(), time.cause.rank, time.cause.step});
  }
  return list;
}

nlohmann::json curve_of(const std::vector<MemoryPoint>& curve) {
  nlohmann::json list = nlohmann::json::array();
  for (const MemoryPoint& point : curve) list.push_back({point.time.count(), point.bytes});
  return list;
}

nlohmann::json expected(const ReportEntry& entry) {
  nlohmann::json json;
  for (int rank = 0; rank < entry.program.num_ranks(); ++rank) {
    json["times"].push_back(times_of(entry.timeline.times[static_cast<std::size_t>(rank)]));
    json["memory"].push_back(
        curve_of(memory_curve(entry.program, entry.timeline, entry.costs, rank)));
  }
  for (const Position& position : critical_path(entry.timeline)) {
    json["path"].push_back({position.rank, position.step});
  }
  return json;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: write_sample_page report.html expected.json\n";
    return 2;
  }
  const std::vector<penstock::ReportEntry> entries = penstock::testing::sample_entries();
  nlohmann::json json = nlohmann::json::array();
  for (const penstock::ReportEntry& entry : entries) json.push_back(penstock::expected(entry));
  std::ofstream(argv[1]) << penstock::write_html_report(entries, {.title = "Samples"});
  std::ofstream(argv[2]) << json;
}
