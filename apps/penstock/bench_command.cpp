#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench_progress.h"
#include "bench_transport_command.h"
#include "commands.h"
#include "option_values.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/report/chrome_trace.h"
#include "penstock/plan/report/html_report.h"
#include "penstock/plan/simulator/profile.h"
#include "penstock/run/bench/step_benchmark.h"
#include "penstock/run/processes/process_ranks.h"
#include "penstock/run/world/world.h"
#include "prepare_process.h"
#include "process_flags.h"
#include "schedule_io.h"
#include "sibling_ranks.h"

namespace penstock {
namespace {

struct StepFlags {
  StepBenchmarkOptions options;
  bool is_fused = false;
  std::string transport = "threads";
  bool as_json = false;
  std::string profile_path;
  std::string report_path;
  std::string trace_path;
  ProcessFlags processes;
  SiblingFlags sibling;
};

double share_of_bound(const StepBenchmark& result) {
  return result.bound() / result.step.median;
}

std::string as_json(const StepBenchmark& result, const StepFlags& flags) {
  const StepBenchmarkOptions& options = result.options;
  nlohmann::ordered_json json;
  json["schedule"] = options.schedule;
  json["ranks"] = options.num_ranks;
  json["stages_per_rank"] = options.stages_per_rank;
  json["microbatches"] = options.num_microbatches;
  json["hidden"] = options.hidden;
  json["rows"] = options.rows;
  json["layers"] = options.layers;
  json["steps"] = options.num_steps;
  json["transport"] = flags.transport;
  json["fused_weight_gradients"] = flags.is_fused;
  json["actions"] = result.num_actions;
  json["step_s"] = result.step.median;
  json["best_s"] = result.step.best;
  json["baseline_s"] = result.baseline.median;
  json["baseline_best_s"] = result.baseline.best;
  json["two_cores_s"] = result.two_cores.median;
  json["two_cores_best_s"] = result.two_cores.best;
  json["ideal_bubble"] = result.ideal_bubble;
  json["schedule_bound_s"] = result.bound();
  json["schedule_bound_best_s"] = result.best_bound();
  json["share_of_bound"] = share_of_bound(result);
  json["share_of_bound_best"] = result.best_bound() / result.step.best;
  return json.dump() + "\n";
}

std::string row(const std::string& label, double median, double best) {
  return fmt::format("{:<38} {:>12.3f} {:>12.3f}\n", label, 1e3 * median, 1e3 * best);
}

std::string as_text(const StepBenchmark& result) {
  const StepBenchmarkOptions& options = result.options;
  std::string text = fmt::format(
      "{}: {}, {} each, {}; {} x (Linear({}, {}), GELU) per stage, {} per microbatch\n\n",
      options.schedule, counted(options.num_ranks, "rank", "ranks"),
      counted(options.stages_per_rank, "stage", "stages"),
      counted(options.num_microbatches, "microbatch", "microbatches"), options.layers,
      options.hidden, options.hidden, counted(options.rows, "row", "rows"));
  text += fmt::format("{:<38} {:>12} {:>12}\n", "milliseconds per step", "median", "best");
  text += row("pipeline", result.step.median, result.step.best);
  text += row("one thread, no pipeline", result.baseline.median, result.baseline.best);
  text += row("two threads, half of the work each", result.two_cores.median, result.two_cores.best);
  text += row(fmt::format("bound of the schedule, bubble {:.2f} %", 100 * result.ideal_bubble),
              result.bound(), result.best_bound());
  text += fmt::format("\nThe pipeline reaches {:.1f} % of that bound (best runs: {:.1f} %).\n",
                      100 * share_of_bound(result), 100 * result.best_bound() / result.step.best);
  return text;
}

void write_files(const StepBenchmark& result, const StepFlags& flags) {
  if (!flags.profile_path.empty()) {
    write_output(write_profile(result.profile), flags.profile_path);
  }
  if (flags.report_path.empty() && flags.trace_path.empty()) return;
  const ReportEntry measured =
      make_measured_entry(result.options.schedule + ", measured", result.program,
                          result.profile.costs, result.timeline);
  if (!flags.trace_path.empty()) {
    write_output([&](const TextSink& sink) { write_chrome_trace(measured, sink); },
                 flags.trace_path);
  }
  if (!flags.report_path.empty()) {
    const std::vector<ReportEntry> entries = {
        measured, make_report_entry(result.options.schedule + ", predicted", result.program,
                                    result.profile.costs)};
    write_output(write_html_report(entries), flags.report_path);
  }
}

void print(const StepBenchmark& result, const StepFlags& flags) {
  write_output(flags.as_json ? as_json(result, flags) : as_text(result), "-");
}

void require_processes(const StepFlags& flags) {
  if (flags.options.num_ranks < 2) {
    throw ArgumentError(
        fmt::format("--transport {} connects at least 2 ranks, not 1", flags.transport));
  }
  if (!flags.profile_path.empty() || !flags.report_path.empty() || !flags.trace_path.empty()) {
    throw ArgumentError(
        "--profile, --report and --trace watch ranks that are threads; leave --transport out");
  }
}

// Ranks are processes: this one starts the others, which come here as well.
void run_processes(const StepFlags& flags) {
  require_processes(flags);
  resolve(flags.options);  // before there are other processes to complain
  const SiblingRanks ranks(flags.sibling, flags.options.num_ranks);
  WorldOptions options = ranks.world();
  options.timeout = flags.processes.join_timeout(options.timeout);
  World world(options);
  const auto group = std::make_shared<ProcessRanks>(
      world,
      ProcessRankOptions{.transport = flags.transport == "gloo" ? TransportKind::Gloo
                                                                : TransportKind::SharedMemory,
                         .replay_path = flags.processes.replay_path,
                         .deadline = flags.processes.deadline(std::chrono::seconds(30))});
  const bool is_first = world.rank() == 0;
  const StepBenchmark result = run_step_benchmark(
      flags.options, is_first ? show_progress : std::function<void(double)>(), group);
  if (is_first) print(result, flags);
}

void run_step(StepFlags flags) {
  if (flags.is_fused) flags.options.weight_gradients = WeightGradients::Fused;
  flags.options.deadline = flags.processes.deadline(flags.options.deadline);
  prepare_process();
  if (flags.transport != "threads") {
    run_processes(flags);
    return;
  }
  require_no_replay(flags.processes);
  const StepBenchmark result = run_step_benchmark(flags.options, show_progress);
  write_files(result, flags);
  print(result, flags);
}

void add_step_command(CLI::App& bench, Answer& answer) {
  auto flags = std::make_shared<StepFlags>();
  auto* command = bench.add_subcommand("step", "Time training steps of a pipeline");
  command->footer(
      "Examples:\n"
      "  penstock bench step --schedule 1f1b\n"
      "  penstock bench step --schedule zbv --hidden 1024 --rows 32 --layers 4 --json\n"
      "  penstock bench step --schedule zbv --profile profile.json --report report.html\n"
      "  penstock bench step --schedule zbv --trace trace.json\n"
      "  penstock bench step --schedule zbv --transport shm --json\n"
      "\n"
      "Runs the pipeline, one thread without a pipeline, and two threads with half of the work "
      "each "
      "by turns, so that they can be compared. The model is made of linear layers with GELU; there "
      "is no optimizer. With --transport shm or gloo, ranks are processes, which this one starts; "
      "the time of a step is then that of rank 0.");
  StepBenchmarkOptions& options = flags->options;
  command->add_option("--schedule", options.schedule, "schedule to run")->capture_default_str();
  expect_count(
      command->add_option("-p,--ranks", options.num_ranks, "ranks, a thread or a process each"))
      ->capture_default_str();
  expect_count(command->add_option("-v,--stages-per-rank", options.stages_per_rank,
                                   "stages per rank; default: as the schedule has it"));
  expect_count(command->add_option("-m,--microbatches", options.num_microbatches, "microbatches"))
      ->capture_default_str();
  expect_count(command->add_option("--hidden", options.hidden, "width of the layers"))
      ->capture_default_str();
  expect_count(command->add_option("--rows", options.rows, "rows of a microbatch"))
      ->capture_default_str();
  expect_count(command->add_option("--layers", options.layers, "layers per stage"))
      ->capture_default_str();
  expect_count(command->add_option("--steps", options.num_steps, "steps to measure"))
      ->capture_default_str();
  expect_choice(
      command->add_option("--transport", flags->transport,
                          "how ranks are connected: threads of this process, or processes "
                          "over shared memory or Gloo"),
      {"threads", "shm", "gloo"})
      ->capture_default_str();
  command->add_flag("--fused", flags->is_fused,
                    "multiply straight into weight gradients: faster, not bit-equal");
  command->add_flag("--pin", options.pins_threads, "pin the threads of ranks to cores");
  command->add_flag("--json", flags->as_json, "print one line of JSON");
  command->add_option("--profile", flags->profile_path, "write the measured costs to this file")
      ->type_name("FILE");
  command
      ->add_option("--report", flags->report_path,
                   "write a page with the measured and the predicted timeline to this file")
      ->type_name("FILE");
  command
      ->add_option("--trace", flags->trace_path,
                   "write the measured timeline as a Chrome trace, for ui.perfetto.dev, to this "
                   "file")
      ->type_name("FILE");
  add_process_options(*command, flags->processes, "600",
                      command->get_option("--report")->get_group());
  add_sibling_flags(*command, flags->sibling);
  command->callback([flags, &answer] {
    run_step(*flags);
    answer = Answer::Yes;
  });
}

}  // namespace

void add_bench_command(CLI::App& program, Answer& answer) {
  auto* command = program.add_subcommand("bench", "Measure pipelines on this machine");
  command->footer(
      "Examples:\n  penstock bench step --schedule 1f1b\n  penstock bench transport --sizes "
      "4,65536");
  command->require_subcommand(1);
  add_step_command(*command, answer);
  add_bench_transport_command(*command, answer);
}

}  // namespace penstock
