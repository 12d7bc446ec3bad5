#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/run/checkpoint/training_position.h"

namespace penstock {

enum class CheckpointContent { Model, Optimizer };

struct CheckpointFile {
  std::string name = {};  // in the folder of the checkpoint
  CheckpointContent content = CheckpointContent::Model;
  std::uint64_t bytes = 0;
  std::string sha256 = {};                // 64 hexadecimal digits
  std::vector<std::string> entries = {};  // names of the tensors in it, sorted

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// What a checkpoint says about itself, in its file manifest.json; docs/formats/checkpoint.md.
struct CheckpointManifest {
  TrainingPosition position = {};
  std::string optimizer = {};                        // "AdamW"; empty if none was saved
  std::map<std::string, std::int64_t> scalars = {};  // of the optimizer: "layer.weight/step"
  std::map<std::string, std::string> aliases = {};   // further names of tensors, and their entries
  std::vector<CheckpointFile> files = {};

  friend bool operator==(const CheckpointManifest&, const CheckpointManifest&) = default;
};

inline constexpr const char* kManifestName = "manifest.json";

// Throws CheckpointError if the position's data is not a JSON text.
std::string write_manifest(const CheckpointManifest& manifest);

// Throws CheckpointError, beginning with `source`, if a single bit is not as it was written.
CheckpointManifest read_manifest(std::string_view text, const std::string& source);

// That of the checkpoint in `folder`.
CheckpointManifest manifest_of(const std::filesystem::path& folder);

}  // namespace penstock
