#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace penstock::testing {

// What Perfetto makes of a trace in JSON. Its importer is a large program that cannot be had here;
// these are its rules for the events that we write, as of August 2026. In google/perfetto, under
// src/trace_processor/importers: json/json_trace_tokenizer.cc and json_trace_parser.cc,
// common/slice_tracker.cc and flow_tracker.cc.
class PerfettoImport {
 public:
  using json = nlohmann::json;

  struct Slice {
    json event;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct Flow {
    std::size_t from = 0;  // indices of slices
    std::size_t to = 0;
  };

  explicit PerfettoImport(const json& trace) {
    std::vector<std::pair<std::int64_t, json>> events;
    for (const json& event : trace.at("traceEvents")) {
      if (!event.contains("ph") || !event.at("ph").is_string()) {
        fail("no phase", event);
      } else if (event.contains("ts") && event.at("ts").is_number()) {
        events.emplace_back(nanoseconds(event.at("ts")), event);
      } else if (event.at("ph") == "M") {
        events.emplace_back(0, event);
      } else {
        fail("no time", event);
      }
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& left, const auto& right) { return left.first < right.first; });
    for (const auto& [time, event] : events) take(time, event);
  }

  const std::vector<std::string>& failures() const { return failures_; }
  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<Flow>& flows() const { return flows_; }
  const std::map<std::int64_t, std::string>& thread_names() const { return thread_names_; }

 private:
  static constexpr std::size_t kMaxDepth = 512;

  static std::int64_t nanoseconds(const json& microseconds) {
    return std::llround(microseconds.get<double>() * 1000);
  }
  void fail(const std::string& reason, const json& event) {
    failures_.push_back(reason + ": " + event.dump());
  }

  void take(std::int64_t time, const json& event) {
    // A row is a thread; numbers that do not fit into 32 bits become 0 and merge rows.
    for (const char* key : {"pid", "tid"}) {
      const bool is_number = event.contains(key) && event.at(key).is_number_unsigned();
      if (!is_number || event.at(key).get<std::uint64_t>() > 0xFFFFFFFFU) fail("no row", event);
    }
    if (!failures_.empty()) return;
    const std::int64_t row = event.at("tid");
    const std::string phase = event.at("ph");
    if (phase == "X") {
      begin_slice(time, row, event);
    } else if (phase == "s" || phase == "f") {
      bind_flow(phase == "s", row, event);
    } else if (phase == "M") {
      name_row(row, event);
    } else {
      fail("unexpected phase", event);
    }
  }

  // Slices of a row nest; those that have ended leave the stack when the next one begins.
  void begin_slice(std::int64_t time, std::int64_t row, const json& event) {
    if (!event.contains("dur") || nanoseconds(event.at("dur")) < 0) {
      return fail("no duration", event);
    }
    const std::int64_t end = time + nanoseconds(event.at("dur"));
    std::vector<std::size_t>& stack = stacks_[row];
    while (!stack.empty()) {
      const Slice& open = slices_[stack.back()];
      const bool are_instants = open.begin == open.end && time == end;
      if (open.end > time || (open.end == time && are_instants)) break;
      stack.pop_back();
    }
    for (const std::size_t index : stack) {
      if (time < slices_[index].end && end > slices_[index].end) fail("overlap", event);
    }
    if (stack.size() >= kMaxDepth) fail("nested too deeply", event);
    stack.push_back(slices_.size());
    slices_.push_back({event, time, end});
  }

  // Both ends of an arrow belong to the innermost slice that is open on their row.
  void bind_flow(bool is_start, std::int64_t row, const json& event) {
    if (!event.contains("id") || !event.at("id").is_number_integer()) return fail("no id", event);
    if (stacks_[row].empty()) return fail("no enclosing slice", event);
    const std::size_t slice = stacks_[row].back();
    const auto id =
        std::tuple(event.at("id").get<std::int64_t>(), event.at("cat").get<std::string>(),
                   event.at("name").get<std::string>());
    if (is_start) {
      if (!flow_starts_.emplace(id, slice).second) fail("id twice", event);
      return;
    }
    if (event.value("bp", "") != "e") return fail("not bound to its slice", event);
    if (!flow_starts_.contains(id)) return fail("end without start", event);
    flows_.push_back({flow_starts_.at(id), slice});
  }

  void name_row(std::int64_t row, const json& event) {
    const json& arguments = event.at("args");
    if (event.at("name") == "thread_sort_index") {
      if (!arguments.at("sort_index").is_number_integer()) fail("no index", event);
      return;
    }
    if (!arguments.at("name").is_string()) return fail("no name", event);
    if (event.at("name") == "thread_name") thread_names_[row] = arguments.at("name");
  }

  std::vector<std::string> failures_;
  std::vector<Slice> slices_;
  std::vector<Flow> flows_;
  std::map<std::int64_t, std::string> thread_names_;
  std::map<std::int64_t, std::vector<std::size_t>> stacks_;
  std::map<std::tuple<std::int64_t, std::string, std::string>, std::size_t> flow_starts_;
};

}  // namespace penstock::testing
