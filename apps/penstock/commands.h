#pragma once

#include <CLI/CLI.hpp>

namespace penstock {

// What the program answers: the exit status of a command.
enum class Answer {
  Yes = 0,
  No = 1,
  WrongQuestion = 2,
  HungUp = 129,
  Interrupted = 130,
  Terminated = 143
};

// Each adds one subcommand to `program`. When the command line names it, its callback does the
// work and stores the answer in `answer`; errors leave it as exceptions.
void add_list_command(CLI::App& program, Answer& answer);
void add_generate_command(CLI::App& program, Answer& answer);
void add_lower_command(CLI::App& program, Answer& answer);
void add_check_command(CLI::App& program, Answer& answer);
void add_simulate_command(CLI::App& program, Answer& answer);
void add_compare_command(CLI::App& program, Answer& answer);
void add_report_command(CLI::App& program, Answer& answer);
void add_search_command(CLI::App& program, Answer& answer);
void add_balance_command(CLI::App& program, Answer& answer);
void add_launch_command(CLI::App& program, Answer& answer);
void add_bench_command(CLI::App& program, Answer& answer);
void add_inspect_command(CLI::App& program, Answer& answer);
void add_split_command(CLI::App& program, Answer& answer);
void add_train_command(CLI::App& program, Answer& answer);
void add_eval_command(CLI::App& program, Answer& answer);
void add_generate_text_command(CLI::App& program, Answer& answer);

}  // namespace penstock
