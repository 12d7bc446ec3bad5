#include "penstock/run/world/world_options.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using ::testing::StartsWith;

using Variables = std::map<std::string, std::string>;

WorldOptions options_from(const Variables& variables) {
  return world_options_from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_from(const Variables& variables) {
  try {
    options_from(variables);
    return "nothing was thrown";
  } catch (const ArgumentError& error) {
    return error.what();
  }
}

TEST(WorldOptionsFromEnvironment, TakesWhatTorchrunSets) {
  const WorldOptions options = options_from({{"RANK", "3"},
                                             {"WORLD_SIZE", "8"},
                                             {"LOCAL_RANK", "1"},
                                             {"MASTER_ADDR", "node7"},
                                             {"MASTER_PORT", "1234"},
                                             {"SLURM_PROCID", "5"}});
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.master_address, "node7");
  EXPECT_EQ(options.master_port, 1234);
}

TEST(WorldOptionsFromEnvironment, TakesWhatMpirunAndSrunSet) {
  const WorldOptions mpi = options_from({{"OMPI_COMM_WORLD_RANK", "1"},
                                         {"OMPI_COMM_WORLD_SIZE", "2"},
                                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                         {"MASTER_ADDR", "a"}});
  EXPECT_EQ(mpi.rank, 1);
  EXPECT_EQ(mpi.size, 2);
  EXPECT_EQ(mpi.local_rank, 1);
  EXPECT_EQ(mpi.master_port, 29500);
  const WorldOptions slurm = options_from(
      {{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_LOCALID", "2"}, {"MASTER_ADDR", "a"}});
  EXPECT_EQ(slurm.rank, 6);
  EXPECT_EQ(slurm.size, 7);
  EXPECT_EQ(slurm.local_rank, 2);
}

TEST(WorldOptionsFromEnvironment, TakesWhatTheLauncherAdds) {
  const WorldOptions options = options_from({{"RANK", "0"},
                                             {"WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"PENSTOCK_TOKEN", "secret"},
                                             {"PENSTOCK_STORE", "/tmp/store"},
                                             {"PENSTOCK_RESTARTS", "2"}});
  EXPECT_EQ(options.attempt, 2);
  EXPECT_EQ(options.token, "secret");
  EXPECT_EQ(options.store_file, "/tmp/store");
}

TEST(WorldOptionsFromEnvironment, NamesTheVariableThatIsWrong) {
  EXPECT_THAT(error_from({}), StartsWith("the environment does not say which rank this is; start"));
  EXPECT_EQ(error_from({{"RANK", "0"}}),
            "the environment variable WORLD_SIZE is missing, although RANK is set");
  EXPECT_EQ(error_from({{"WORLD_SIZE", "2"}}),
            "the environment variable RANK is missing, although WORLD_SIZE is set");
  EXPECT_EQ(error_from({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "the environment variable RANK is \"2\"; expected a number from 0 to 1");
  EXPECT_EQ(error_from({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}),
            "the environment variable WORLD_SIZE is \"2x\"; expected a number of at least 1");
  EXPECT_THAT(error_from({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              StartsWith("the environment variable MASTER_ADDR is missing; the 2 ranks meet at"));
  EXPECT_EQ(
      error_from(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
      "the environment variable MASTER_PORT is \"70000\"; expected a number from 1 to 65535");
}

}  // namespace
}  // namespace penstock
