#pragma once

#include <filesystem>
#include <vector>

#include <torch/csrc/jit/api/module.h>

#include "penstock/run/graph/stage_graph.h"

namespace penstock {

// The stage as a TorchScript module with its tensors under their own names. It takes what the stage
// before it returns, one value after the other; the first takes the model's arguments.
torch::jit::Module to_script(const StageGraph& stage);

// Writes stage_0.pt, stage_1.pt, ... and manifest.json (docs/formats/manifest.md) into `folder`,
// which is created. All of it or nothing: throws Error if the folder has any of these files
// already, or cannot be written to.
void save_stages(const std::vector<StageGraph>& stages, const std::filesystem::path& folder);

}  // namespace penstock
