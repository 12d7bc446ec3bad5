#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace penstock {

// Who a process is among the ranks of a job, and where they meet. A world of one rank needs no
// meeting place.
struct WorldOptions {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host

  // Rank 0 listens here, the others connect.
  std::string master_address = "127.0.0.1";
  int master_port = 29500;
  // If not empty, they meet in this file instead. It must not exist from an earlier run, and all
  // ranks must see it.
  std::string store_file = {};

  // Known to the members of the job alone: who does not know it cannot join. Empty, if rank 0 is
  // reached at a loopback address: it makes one, which the others find in a file of their user.
  std::string token = {};
  // How often the job was started again. Ranks of different attempts do not take each other for
  // members of one job, though they have its token.
  int attempt = 0;

  // At which the other ranks reach this one. Empty: the address that reaches the master.
  std::string address = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for all ranks to be there
  // Called again and again while ranks are missing. What it throws ends the joining, so that a rank
  // that is known to be gone is not waited for.
  std::function<void()> look = {};
};

// The value of an environment variable, or null.
using GetVariable = std::function<const char*(const char* name)>;

// What torchrun, mpirun and srun tell their processes: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE
// and LOCAL_RANK, or the variables of Open MPI and Slurm for the last three; and PENSTOCK_TOKEN,
// PENSTOCK_STORE, which is the file, and PENSTOCK_RESTARTS, as `penstock launch` adds them. A
// program calls it as
//   World world(world_options_from_environment(std::getenv));
// Throws ArgumentError, which names the variable, if one is missing or makes no sense.
WorldOptions world_options_from_environment(const GetVariable& variable);

}  // namespace penstock
