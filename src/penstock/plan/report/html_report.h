#pragma once

#include <span>
#include <string>

#include "penstock/plan/report/report_entry.h"

namespace penstock {

struct ReportOptions {
  std::string title;  // empty: made from the entries
};

// One self-contained HTML page about one schedule or several to compare: timeline, memory, idle
// time by cause, critical path, and sliders that simulate with other costs. It opens from disk and
// fetches nothing. Throws ArgumentError without an entry.
std::string write_html_report(std::span<const ReportEntry> entries,
                              const ReportOptions& options = {});

}  // namespace penstock
