#pragma once

#include <filesystem>
#include <vector>

#include "penstock/run/checkpoint/rank_state.h"
#include "penstock/run/checkpoint/training_position.h"

namespace penstock {

struct LoadOptions {
  // Whether it is an error if the checkpoint has tensors that none of the states asks for: then
  // they are not of the same model. Not for processes that hold parts of it.
  bool needs_all = false;
};

// Reads the tensors and optimizers of `states` from the checkpoint in the folder `checkpoint`,
// whatever pipeline has saved it, and returns where it stood. Files that hold nothing of them are
// not opened. Without an optimizer, its state is left out.
//
// Throws CheckpointError, with the file and the tensor, if anything is missing, damaged or of
// another type or shape. Nothing was changed then.
TrainingPosition load_checkpoint(const std::filesystem::path& checkpoint,
                                 const std::vector<RankState>& states,
                                 const LoadOptions& options = {});

}  // namespace penstock
