#include "program.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/version.h"
#include "penstock/plan/prover/check.h"
#include "schedule_io.h"
#include "usage.h"

namespace penstock {
namespace {

// An error is one line, whatever file names it holds.
void complain(const std::string& message) {
  std::string line;
  for (const char letter : message) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    line += is_control ? fmt::format("\\x{:02x}", byte) : std::string(1, letter);
  }
  fmt::print(stderr, "penstock: {}\n", line);
}

std::string first_violation(const CheckReport& report) {
  const std::string rest =
      report.num_violations > 1
          ? fmt::format(" (and {} more; see 'penstock check')", report.num_violations - 1)
          : "";
  return fmt::format("invalid schedule: {}{}", to_string(report.violations.front()), rest);
}

Answer run_command(CLI::App& program, const Answer& answer, int argc, char** argv) {
  try {
    program.parse(argc, argv);
    return answer;
  } catch (const CLI::CallForHelp&) {
    write_output(program.help(), "-");
    return Answer::Yes;
  } catch (const CLI::CallForVersion&) {
    write_output(program.version() + "\n", "-");
    return Answer::Yes;
  } catch (const CLI::ParseError& error) {
    complain(usage_problem(program, error));
    return Answer::WrongQuestion;
  }
}

}  // namespace

std::string text_of(const std::exception& error) {
  return error.what();
}

int run_program(int argc, char** argv, std::initializer_list<AddCommand> commands,
                Explain explain) {
  Answer answer = Answer::WrongQuestion;
  CLI::App program("Pipeline schedules as data: generate, prove, simulate and run them.",
                   "penstock");
  program.formatter(std::make_shared<ExamplesFirst>());
  program.footer(
      "Examples:\n"
      "  penstock generate 1f1b --ranks 4 --microbatches 8 --format table\n"
      "  penstock train --model mlp --steps 20\n"
      "\n"
      "Exit status: 0 done, 1 the answer is no or a run has failed, 2 the question was wrong,\n"
      "130 Ctrl-C has stopped it (128 + the signal, for others).");
  program.set_version_flag("--version", std::string("penstock ") + version());
  program.require_subcommand(1);
  for (const AddCommand add : commands) add(program, answer);
  try {
    return static_cast<int>(run_command(program, answer, argc, argv));
  } catch (const ScheduleError& error) {
    complain(first_violation(error.report()));
    return static_cast<int>(Answer::No);
  } catch (const FailedRun& error) {
    complain(error.what());
    return static_cast<int>(Answer::No);
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(explain(error));
  }
  return static_cast<int>(Answer::WrongQuestion);
}

}  // namespace penstock
