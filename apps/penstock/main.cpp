#include "commands.h"
#include "delegate.h"
#include "program.h"

int main(int argc, char** argv) {
  using namespace penstock;  // NOLINT(google-build-using-namespace): a list of names follows
  return run_program(
      argc, argv,
      {add_list_command, add_generate_command, add_lower_command, add_check_command,
       add_simulate_command, add_compare_command, add_report_command, add_search_command,
       add_balance_command, add_launch_command, add_delegated_commands});
}
