#pragma once

#include <string>

#include "penstock/plan/report/report_entry.h"

namespace penstock {

// The size of the picture in pixels; the defaults suit a screen or a slide.
struct SvgOptions {
  static constexpr int kFitLanes = 0;

  int width = 1920;
  int height = kFitLanes;  // kFitLanes: as high as the ranks need
};

// A timeline as one SVG image: a lane per rank, a cell per computing action, labelled with the
// action's text where it fits; title with the parameters, legend and time axis. Throws
// ArgumentError if the size is too small to draw in.
std::string write_svg(const ReportEntry& entry, const SvgOptions& options = {});

}  // namespace penstock
