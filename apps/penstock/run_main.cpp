#include "commands.h"
#include "penstock/run/libtorch/cause.h"
#include "program.h"

// The commands that need libtorch. A program of their own, because loading libtorch takes longer
// than most of the other commands; `penstock` calls it.
int main(int argc, char** argv) {
  return penstock::run_program(
      argc, argv,
      {penstock::add_train_command, penstock::add_eval_command, penstock::add_generate_text_command,
       penstock::add_bench_command, penstock::add_inspect_command, penstock::add_split_command},
      // What libtorch throws has the whole stack in it.
      penstock::cause_of);
}
