#include "penstock/launch/launcher.h"

#include <string>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/random_token.h"
#include "penstock/base/text.h"
#include "penstock/launch/internal/caretaker.h"
#include "penstock/launch/internal/job.h"
#include "penstock/launch/internal/output.h"
#include "penstock/launch/internal/rendezvous.h"
#include "penstock/launch/internal/signal_reader.h"
#include "penstock/launch/internal/strays.h"
#include "penstock/launch/rank_environment.h"

namespace penstock {
namespace {

void require_sensible(const LaunchOptions& options) {
  const auto require = [](bool is_right, const std::string& problem) {
    if (!is_right) throw ArgumentError(problem);
  };
  require(!options.program.empty(), "there is no program to launch; name it after --");
  require(options.num_ranks >= 1,
          fmt::format("expected at least 1 rank, found {}", options.num_ranks));
  require(options.num_nodes >= 1,
          fmt::format("expected at least 1 host, found {}", options.num_nodes));
  require(options.node_rank >= 0 && options.node_rank < options.num_nodes,
          fmt::format("host {} is not one of {}; hosts are counted from 0", options.node_rank,
                      counted(options.num_nodes, "host", "hosts")));
  if (options.num_nodes == 1) return;
  require(!options.master_address.empty(), "several hosts need the address of the first one");
  require(options.master_port != 0, "several hosts need a port that all of them know");
  require(!options.token.empty(),
          "several hosts need a token that only they know; set PENSTOCK_TOKEN to the same random "
          "text on each of them");
}

}  // namespace

int launch(const LaunchOptions& options) {
  require_sensible(options);
  const SignalReader signals;
  adopt_strays();
  Output output;
  const PrivateFolder folder;
  const Caretaker caretaker(folder.path());
  for (int restarts = 0;; ++restarts) {
    // On one host nothing needs to listen where strangers can connect.
    const bool is_alone = options.num_nodes == 1 && options.master_address.empty();
    const Attempt attempt{
        .master_address = options.master_address.empty() ? "127.0.0.1" : options.master_address,
        .master_port = options.master_port != 0 ? options.master_port : find_free_port(),
        .token = options.token.empty() ? random_token() : options.token,
        .store_file = is_alone ? folder.path(fmt::format("store-{}", restarts)) : "",
        .num_restarts = restarts};
    Job job(options, attempt, signals, caretaker, output);
    job.run();
    if (job.exit_code() == 0 || job.was_interrupted() || restarts >= options.max_restarts) {
      return job.exit_code();
    }
    output.say(fmt::format("starting all ranks again, restart {} of {}", restarts + 1,
                           options.max_restarts));
  }
}

}  // namespace penstock
