#pragma once

#include <filesystem>

#include <torch/csrc/jit/api/module.h>

#include "penstock/run/capture/captured_model.h"

namespace penstock {

// Reads a TorchScript file, also one that a newer PyTorch has written, as long as its operators
// exist here or define_newer_operators() knows them. Throws CaptureError, with the path, if it is
// missing, damaged or something else.
torch::jit::Module load_script(const std::filesystem::path& path);

// Captures a scripted or traced TorchScript module in the mode (training or not) that it is in. The
// graph stays independent of sizes as far as the script is. The module itself is not changed, and
// its tensors are shared.
//
// Throws CaptureError, with the operator and its module, for what a graph of stages cannot hold:
// assignments to attributes, and modules that are chosen while the model runs.
CapturedModel capture_script(const torch::jit::Module& module);

}  // namespace penstock
