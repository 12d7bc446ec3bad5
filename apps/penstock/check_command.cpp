#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "option_values.h"
#include "penstock/base/text.h"
#include "penstock/plan/prover/check.h"
#include "schedule_io.h"

namespace penstock {
namespace {

struct CheckCommandOptions {
  std::string path;
  int num_stages = 0;
  int num_microbatches = 0;
  std::size_t max_violations = CheckOptions{}.max_violations;
  std::string format = "text";
};

std::string form_of(const CheckReport& report) {
  return fmt::format("{}{}", report.is_forward_only ? "forward-only " : "",
                     report.is_lowered ? "lowered schedule" : "compute order");
}

std::string as_text(const CheckReport& report) {
  const std::string shape =
      fmt::format("{}, {}, {}, {}", form_of(report), counted(report.num_ranks, "rank", "ranks"),
                  counted(report.num_stages, "stage", "stages"),
                  counted(report.num_microbatches, "microbatch", "microbatches"));
  if (report.is_valid()) {
    return fmt::format(
        "valid: {}\n"
        "proved: complete, in order, {}\n"
        "peak live activations per rank: {}\n",
        shape,
        report.is_lowered ? "sends matched with receives, free of deadlock under rendezvous and "
                            "buffering"
                          : "free of deadlock",
        fmt::join(report.peak_activations, " "));
  }
  std::string text = fmt::format(
      "invalid: {}: {}\n", shape,
      counted(static_cast<long long>(report.num_violations), "violation", "violations"));
  for (const Violation& violation : report.violations) {
    text += fmt::format("{}: {}\n", rule_name(violation.rule), to_string(violation));
  }
  if (report.num_violations > report.violations.size()) {
    text += fmt::format("and {} more; raise --max-violations to see them\n",
                        report.num_violations - report.violations.size());
  }
  return text;
}

std::string as_json(const CheckReport& report) {
  nlohmann::ordered_json violations = nlohmann::ordered_json::array();
  for (const Violation& violation : report.violations) {
    nlohmann::ordered_json entry;
    entry["rule"] = rule_name(violation.rule);
    if (violation.position.rank >= 0) entry["rank"] = violation.position.rank;
    if (violation.position.step >= 0) {
      entry["step"] = violation.position.step;
      entry["action"] = violation.action;
    }
    entry["problem"] = violation.problem;
    violations.push_back(entry);
  }
  nlohmann::ordered_json json;
  json["valid"] = report.is_valid();
  json["form"] = report.is_lowered ? "lowered" : "compute";
  json["forward_only"] = report.is_forward_only;
  json["num_ranks"] = report.num_ranks;
  json["num_stages"] = report.num_stages;
  json["num_microbatches"] = report.num_microbatches;
  json["placement"] = report.placement.ranks();
  json["peak_activations"] = report.peak_activations;
  json["num_violations"] = report.num_violations;
  json["violations"] = violations;
  return json.dump(2) + "\n";
}

Answer run_check(const CheckCommandOptions& options) {
  const Schedule schedule = read_schedule(options.path);
  CheckOptions check_options = {.max_violations = options.max_violations};
  if (options.num_stages > 0 || options.num_microbatches > 0) {
    const Extent mentioned = extent_of(schedule);
    check_options.extent = {
        options.num_stages > 0 ? options.num_stages : mentioned.num_stages,
        options.num_microbatches > 0 ? options.num_microbatches : mentioned.num_microbatches};
  }
  const CheckReport report = check(schedule, check_options);
  write_output(options.format == "json" ? as_json(report) : as_text(report), "-");
  return report.is_valid() ? Answer::Yes : Answer::No;
}

}  // namespace

void add_check_command(CLI::App& program, Answer& answer) {
  const auto options = std::make_shared<CheckCommandOptions>();
  CLI::App* command = program.add_subcommand("check", "Prove a schedule, or say all that is wrong");
  command->footer(
      "Example:\n"
      "  penstock generate zbv --ranks 4 --microbatches 8 --lower | penstock check -\n"
      "\n"
      "Reads a compute order or a lowered schedule (CSV or JSON) and decides whether it is\n"
      "complete, in order, correctly connected and free of deadlock. Exit status 0 means valid,\n"
      "1 invalid (every violation is listed with rank, step and action), 2 not readable.");
  command->add_option("file", options->path, "schedule, or - for standard input")
      ->required()
      ->type_name("FILE");
  expect_count(command->add_option("--stages", options->num_stages,
                                   "stages that must be there (default: all mentioned)"))
      ->type_name("S");
  expect_count(command->add_option("-m,--microbatches", options->num_microbatches,
                                   "microbatches that must be there (default: all mentioned)"))
      ->type_name("M");
  expect_count(
      command->add_option("--max-violations", options->max_violations, "most violations to list"))
      ->type_name("N")
      ->capture_default_str();
  expect_choice(command->add_option("--format", options->format, "text for people, or json"),
                {"text", "json"})
      ->type_name("FORMAT")
      ->capture_default_str();
  command->callback([options, &answer] { answer = run_check(*options); });
}

}  // namespace penstock
