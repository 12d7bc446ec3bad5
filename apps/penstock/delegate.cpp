#include "delegate.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "blas_core.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

[[noreturn]] void call_run_program(const std::string& command, std::vector<std::string> arguments) {
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "penstock-run";
  std::string name = "penstock-run";
  std::string verb = command;
  std::vector<char*> words = {name.data(), verb.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  // The other program computes on its own threads; those of OpenBLAS need not even start.
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
  set_blas_core(better_blas_core());  // loading libtorch a second time for it would take long
  execv(path.c_str(), words.data());
  throw Error(
      fmt::format("penstock {} needs the program {}, which cannot be started ({}); it is built "
                  "where libtorch is "
                  "there, with -DPENSTOCK_BUILD_RUN=ON",
                  command, quote(path.string(), 200), std::strerror(errno)));
}

void add_delegated_command(CLI::App& program, const std::string& name, const std::string& about) {
  auto* command = program.add_subcommand(name, about);
  command->set_help_flag();  // the other program has the help
  command->prefix_command();
  command->callback([command, name] { call_run_program(name, command->remaining()); });
}

}  // namespace

void add_delegated_commands(CLI::App& program, Answer& /*answer*/) {
  add_delegated_command(program, "train", "Train a model in a pipeline");
  add_delegated_command(program, "eval", "Tell the loss of a trained model on held-out data");
  add_delegated_command(program, "generate-text", "Let a trained model write text");
  add_delegated_command(program, "bench", "Measure pipelines on this machine");
  add_delegated_command(program, "inspect",
                        "Show the modules of a TorchScript model and what they cost");
  add_delegated_command(program, "split", "Cut a TorchScript model into stages, one file each");
}

}  // namespace penstock
