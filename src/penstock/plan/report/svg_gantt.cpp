#include "penstock/plan/report/svg_gantt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/plan/report/internal/description.h"
#include "penstock/plan/report/internal/escape.h"

namespace penstock {
namespace {

constexpr int kLeft = 84;    // of the lanes; rank labels stand before them
constexpr int kRight = 28;   // keeps the last label of the axis inside
constexpr int kTop = 104;    // title, two lines of parameters and the axis
constexpr int kBottom = 56;  // legend
constexpr int kMinWidth = 320;
constexpr double kMinLane = 4;

// The width of a label for a font size of 1: an estimate that holds for the usual sans-serif fonts.
double label_width(std::string_view label) {
  constexpr double kDigit = 0.64;
  constexpr double kW = 1;
  double width = 0;
  for (const char character : label) width += character == 'W' ? kW : kDigit;
  return width;
}

// The palette is that of the HTML report; see page/report.css. Lightness falls from I over B and W
// to F, and W is hatched, so that the kinds can be told apart without colour.
constexpr std::string_view kStyle =
    "  <style>\n"
    "    text { font-family: system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif; fill: "
    "#1b1f24; }\n"
    "    .title { font-size: 20px; font-weight: 600; }\n"
    "    .parameters { font-size: 13px; fill: #4a525c; }\n"
    "    .axis { font-size: 11px; fill: #4a525c; text-anchor: middle; }\n"
    "    .rank { font-size: 12px; text-anchor: end; dominant-baseline: central; }\n"
    "    .key { font-size: 12px; dominant-baseline: central; }\n"
    "    .label { text-anchor: middle; dominant-baseline: central; }\n"
    "    .on-F { fill: #ffffff; }\n"
    "    .on-W { paint-order: stroke; stroke: #2ab08a; stroke-width: 3px; }\n"
    "    .lane { fill: #f1f3f5; }\n"
    "    .grid { stroke: #d5dae0; }\n"
    "    .F, .B, .I, .W { stroke: #ffffff; stroke-width: 0.6; }\n"
    "    .F { fill: #0072b2; }\n"
    "    .B { fill: #e69f00; }\n"
    "    .I { fill: #f2de62; }\n"
    "    .W { fill: url(#hatched); }\n"
    "    .pair { fill: none; stroke: #1b1f24; }\n"
    "  </style>\n"
    "  <defs>\n"
    "    <pattern id=\"hatched\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">\n"
    "      <rect width=\"6\" height=\"6\" fill=\"#2ab08a\"/>\n"
    "      <rect width=\"1.25\" height=\"6\" fill=\"#00865f\"/>\n"
    "    </pattern>\n"
    "  </defs>\n";

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// With at most two digits after the point, and no zeros at the end.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

// As much of `text` as fits, with an ellipsis for the rest.
std::string cut_to_width(const std::string& text, double width, double font_size) {
  const auto most = static_cast<std::size_t>(std::max(1.0, width / (font_size * 0.58)));
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  const auto is_inside_character = [&] {
    return (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U;
  };
  while (end > 0 && is_inside_character()) --end;
  return text.substr(0, end) + "\u2026";
}

// The distance of the time marks: 1, 2 or 5 times a power of ten, and at least `smallest`.
double nice_step(double smallest) {
  const double power = std::pow(10, std::floor(std::log10(smallest)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= smallest) return factor * power;
  }
  return 10 * power;
}

double lane_height_for(int num_ranks) {
  if (num_ranks <= 16) return 36;
  return num_ranks <= 32 ? 26 : 16;
}

class GanttWriter {
 public:
  GanttWriter(const ReportEntry& entry, const SvgOptions& options)
      : entry_(entry), width_(options.width), height_(options.height) {
    const int num_ranks = entry.program.num_ranks();
    lane_ = lane_height_for(num_ranks);
    if (height_ == SvgOptions::kFitLanes) {
      height_ = kTop + static_cast<int>(lane_) * num_ranks + kBottom;
    }
    lane_ = static_cast<double>(height_ - kTop - kBottom) / std::max(1, num_ranks);
    if (width_ < kMinWidth || lane_ < kMinLane) {
      throw ArgumentError(fmt::format(
          "a picture of {} x {} pixels is too small for {} ranks; use at least {} x {}", width_,
          height_, num_ranks, kMinWidth, kTop + kBottom + static_cast<int>(kMinLane) * num_ranks));
    }
    const double span = std::max<double>(1, static_cast<double>(entry.timeline.makespan.count()));
    scale_ = (width_ - kLeft - kRight) / span;
  }

  std::string write() {
    write_head();
    write_axis();
    for (int rank = 0; rank < entry_.program.num_ranks(); ++rank) write_lane(rank);
    write_legend();
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  double x_at(Duration time) const { return kLeft + static_cast<double>(time.count()) * scale_; }

  void write_head() {
    const std::string shape = describe_shape(entry_.program);
    const std::string costs = describe_costs(entry_.costs);
    const std::string result = describe_result(entry_);
    const std::string title = fmt::format("{}: {}", entry_.name, shape);
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" role=\"img\">\n",
        width_, height_);
    add("  <title>{}</title>\n", escape_markup(title));
    add("  <desc>{}; {}</desc>\n", escape_markup(costs), escape_markup(result));
    text_ += kStyle;
    add("  <rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n", width_, height_);
    add_line("title", 30, title, 20);
    add_line("parameters", 52, result, 13);
    add_line("parameters", 70, costs, 13);
  }

  void add_line(std::string_view style, int y, const std::string& line, double font_size) {
    add("  <text class=\"{}\" x=\"12\" y=\"{}\">{}</text>\n", style, y,
        escape_markup(cut_to_width(line, width_ - 24, font_size)));
  }

  void write_axis() {
    constexpr double kLeastDistance = 90;  // of two marks, in pixels
    const double makespan = static_cast<double>(entry_.timeline.makespan.count());
    const double step = nice_step(std::max(1.0, kLeastDistance / scale_));
    for (double time = 0; time <= makespan; time += step) {
      const Duration mark(std::llround(time));
      const std::string x = number(x_at(mark));
      add("  <text class=\"axis\" x=\"{}\" y=\"{}\">{}{}</text>\n", x, kTop - 10,
          milliseconds_text(mark), time == 0 ? " ms" : "");
      add("  <path class=\"grid\" d=\"M{} {}V{}\"/>\n", x, kTop - 6, height_ - kBottom);
    }
  }

  void write_lane(int rank) {
    const double gap = std::min(3.0, lane_ * 0.1);
    Box lane{.x = kLeft,
             .y = kTop + lane_ * rank + gap / 2,
             .width = static_cast<double>(width_ - kLeft - kRight),
             .height = lane_ - gap};
    add("  <g id=\"rank-{}\">\n", rank);
    if (lane_ >= 10 || rank % 4 == 0) {
      add("    <text class=\"rank\" x=\"{}\" y=\"{}\">rank {}</text>\n", kLeft - 10,
          number(lane.y + lane.height / 2), rank);
    }
    add_box("lane", lane);
    const std::vector<Action>& actions = entry_.program.actions_of(rank);
    const std::vector<ActionTime>& times = entry_.timeline.times[static_cast<std::size_t>(rank)];
    for (std::size_t step = 0; step < actions.size(); ++step) {
      if (!is_compute(actions[step].kind)) continue;
      lane.x = x_at(times[step].start);
      lane.width = x_at(times[step].end) - lane.x;
      write_cell(actions[step], lane);
    }
    text_ += "  </g>\n";
  }

  // The parts of a container run together: they share the height of the lane.
  void write_cell(const Action& action, const Box& cell) {
    if (action.kind != ActionKind::Overlap) {
      write_part(action, cell);
      return;
    }
    Box part = cell;
    part.height = cell.height / static_cast<double>(action.parts.size());
    for (const Action& inner : action.parts) {
      write_part(inner, part);
      part.y += part.height;
    }
    add_box("pair", cell);
  }

  void write_part(const Action& action, const Box& cell) {
    text_ += "    ";
    add("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", kind_text(action.kind),
        number(cell.x), number(cell.y), number(cell.width), number(cell.height));
    write_label(action, cell);
    text_ += '\n';
  }

  // On one line if it fits, else as stage and kind over the microbatch, else not at all.
  void write_label(const Action& action, const Box& cell) {
    constexpr double kSmallestFont = 8;
    constexpr double kLargestFont = 12;
    const double room = cell.width - 2;
    const auto fits = [&](double width, double font) { return width * font <= room; };
    const std::string whole = to_string(action);
    const std::string head = fmt::format("{}{}", action.stage, kind_text(action.kind));
    const std::string tail = fmt::to_string(action.microbatch);
    const double middle = cell.x + cell.width / 2;
    for (double font = std::min(kLargestFont, cell.height - 3); font >= kSmallestFont; font -= 1) {
      if (!fits(label_width(whole), font)) continue;
      add_label(action, {middle, cell.y + cell.height / 2, 0, font}, whole);
      return;
    }
    const double tallest = std::min(kLargestFont, (cell.height - 3) / 2);
    for (double font = tallest; font >= kSmallestFont; font -= 1) {
      if (!fits(std::max(label_width(head), label_width(tail)), font)) continue;
      add_label(action, {middle, cell.y + cell.height / 2 - font * 0.55, 0, font}, head);
      add_label(action, {middle, cell.y + cell.height / 2 + font * 0.55, 0, font}, tail);
      return;
    }
  }

  // `place` has the middle of the label, and its font size as the height.
  void add_label(const Action& action, const Box& place, const std::string& label) {
    add("<text class=\"label on-{}\" x=\"{}\" y=\"{}\" font-size=\"{}\">{}</text>",
        kind_text(action.kind), number(place.x), number(place.y), number(place.height), label);
  }

  void add_box(std::string_view style, const Box& box) {
    add("    <rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", style,
        number(box.x), number(box.y), number(box.width), number(box.height));
  }

  bool has_kind(ActionKind kind) const {
    for (const std::vector<Action>& actions : entry_.program.ranks) {
      for (const Action& action : actions) {
        bool is_there = action.kind == kind;
        for_each_part(action, [&](const Action& part) { is_there |= part.kind == kind; });
        if (is_there) return true;
      }
    }
    return false;
  }

  void write_legend() {
    constexpr std::array<std::pair<ActionKind, std::string_view>, 5> kEntries = {
        {{ActionKind::Forward, "F forward"},
         {ActionKind::FullBackward, "B backward"},
         {ActionKind::InputBackward, "I input gradient"},
         {ActionKind::WeightBackward, "W weight gradient"},
         {ActionKind::Overlap, "pair that runs together"}}};
    const double y = height_ - kBottom / 2.0;
    double x = kLeft;
    text_ += "  <g id=\"legend\">\n";
    for (const auto& [kind, meaning] : kEntries) {
      if (!has_kind(kind)) continue;
      if (kind == ActionKind::Overlap) {
        add_box("F", {x, y - 8, 24, 8});
        add_box("B", {x, y, 24, 8});
      }
      add_box(kind == ActionKind::Overlap ? "pair" : kind_text(kind), {x, y - 8, 24, 16});
      add("    <text class=\"key\" x=\"{}\" y=\"{}\">{}</text>\n", number(x + 32), number(y),
          meaning);
      x += 32 + static_cast<double>(meaning.size()) * 12 * 0.6 + 20;
    }
    if (x + 80 <= width_) {
      add_box("lane", {x, y - 8, 24, 16});
      add("    <text class=\"key\" x=\"{}\" y=\"{}\">idle</text>\n", number(x + 32), number(y));
    }
    text_ += "  </g>\n";
  }

  const ReportEntry& entry_;
  int width_;
  int height_;
  double lane_ = 0;
  double scale_ = 1;  // pixels per nanosecond
  std::string text_;
};

}  // namespace

std::string write_svg(const ReportEntry& entry, const SvgOptions& options) {
  return GanttWriter(entry, options).write();
}

}  // namespace penstock
