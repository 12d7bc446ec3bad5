#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "penstock/plan/report/report_entry.h"

namespace penstock {

// Takes the next piece of a long text.
using TextSink = std::function<void(std::string_view)>;

// The run in the Trace Event Format, which Perfetto and chrome://tracing open. Each rank
// has a row for its computing actions and rows for sends, receives and parameter actions; arrows
// lead from sends to receives. Written piece by piece, because large programs make large traces.
void write_chrome_trace(const ReportEntry& entry, const TextSink& sink);
std::string write_chrome_trace(const ReportEntry& entry);

}  // namespace penstock
