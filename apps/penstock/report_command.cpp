#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "cost_options.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/report/chrome_trace.h"
#include "penstock/plan/report/html_report.h"
#include "penstock/plan/report/svg_gantt.h"
#include "schedule_source.h"

namespace penstock {
namespace {

struct ReportCommandOptions {
  std::vector<std::string> sources;
  SourceFlags source_flags;
  CostFlags costs;
  std::string path;
  SvgOptions svg;
};

enum class ReportKind { Html, Svg, Trace };

// What the ending of the output file asks for.
ReportKind kind_of(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".html" || ending == ".htm") return ReportKind::Html;
  if (ending == ".svg") return ReportKind::Svg;
  if (ending == ".json") return ReportKind::Trace;
  throw ArgumentError(fmt::format(
      "--output: expected a file that ends in .html, .svg or .json, found {}", quote(path)));
}

ReportEntry load_entry(const std::string& source, const ReportCommandOptions& options) {
  Program program = load_program(source, options.source_flags);
  CostModel costs = options.costs.resolve(program.stages_per_rank);
  return make_report_entry(std::move(program.name), std::move(program.schedule), std::move(costs));
}

void run_report(const ReportCommandOptions& options) {
  const ReportKind kind = kind_of(options.path);
  if (kind != ReportKind::Html && options.sources.size() > 1) {
    throw ArgumentError(fmt::format("{} shows one schedule, found {}; only .html compares several",
                                    quote(options.path), options.sources.size()));
  }
  std::vector<ReportEntry> entries;
  for (const std::string& source : options.sources) entries.push_back(load_entry(source, options));
  switch (kind) {
    case ReportKind::Html:
      return write_output(write_html_report(entries), options.path);
    case ReportKind::Svg:
      return write_output(write_svg(entries.front(), options.svg), options.path);
    case ReportKind::Trace:
      return write_output([&](const TextSink& sink) { write_chrome_trace(entries.front(), sink); },
                          options.path);
  }
}

}  // namespace

void add_report_command(CLI::App& program, Answer& answer) {
  const auto options = std::make_shared<ReportCommandOptions>();
  CLI::App* command =
      program.add_subcommand("report", "Draw schedules as a page, a picture or a trace");
  command->footer(
      "Examples:\n"
      "  penstock report 1f1b zbv --ranks 4 --microbatches 8 --per-rank --output report.html\n"
      "  penstock report zbv -p 4 -m 8 --costs 10,10,8 --hop 0.5 --output zbv.svg\n"
      "\n"
      "The ending of the output file decides: .html is one page that needs nothing else, with\n"
      "timeline, memory, idle time by cause and critical path, and compares several schedules;\n"
      ".svg is the timeline alone; .json is a Chrome trace, for ui.perfetto.dev.");
  command->add_option("schedules", options->sources, "names, files, or - for standard input")
      ->required()
      ->type_name("NAME|FILE");
  command->add_option("-o,--output", options->path, "file to write: .html, .svg or .json")
      ->required()
      ->type_name("FILE");
  add_source_options(*command, options->source_flags);
  add_cost_options(*command, options->costs);
  const CountRange pixels = {.smallest = 1, .largest = 100'000};
  expect_count(command->add_option("--width", options->svg.width, "of the .svg, in pixels"), pixels)
      ->type_name("PIXELS")
      ->capture_default_str();
  expect_count(command->add_option("--height", options->svg.height,
                                   "of the .svg, in pixels (default: as the ranks need)"),
               pixels)
      ->type_name("PIXELS");
  command->callback([options, &answer] {
    run_report(*options);
    answer = Answer::Yes;
  });
}

}  // namespace penstock
