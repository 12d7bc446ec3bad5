#pragma once

#include <filesystem>
#include <vector>

#include "penstock/run/checkpoint/checkpoint_group.h"
#include "penstock/run/checkpoint/rank_state.h"
#include "penstock/run/checkpoint/training_position.h"

namespace penstock {

struct SaveOptions {
  int keep = 0;                // checkpoints in the folder, with the new one; 0: all
  CheckpointGroup group = {};  // if several processes save together
};

// Writes the checkpoint of `position.step` into `folder`, which is created, and returns its path
// (checkpoint_folder.h). Each state is written by a thread of its own. Of tensors that several
// states hold under the same name, one is written: they are taken to be equal.
//
// A kill at any moment, or a failing disk, leaves the checkpoints that were there, or those and the
// new one. Throws CheckpointError, in all processes of the group, with the file and the cause.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder,
                                      const std::vector<RankState>& states,
                                      const TrainingPosition& position,
                                      const SaveOptions& options = {});
std::filesystem::path save_checkpoint(const std::filesystem::path& folder,
                                      const std::vector<GatheredState>& states,
                                      const TrainingPosition& position,
                                      const SaveOptions& options = {});

}  // namespace penstock
