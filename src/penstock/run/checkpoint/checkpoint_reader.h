#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/run/checkpoint/manifest.h"
#include "penstock/run/checkpoint/safetensors.h"
#include "penstock/run/optimizer/optimizer_state.h"

namespace penstock {

// A checkpoint by the names in it, whoever has written which of them. Files are opened when
// something in them is asked for, and compared with their checksums first. All functions throw
// CheckpointError, which begins with the file that is missing or damaged.
class CheckpointReader {
 public:
  // Reads the manifest of the checkpoint in `folder`, for example run/step-00000010.
  explicit CheckpointReader(std::filesystem::path folder);

  const CheckpointManifest& manifest() const { return manifest_; }

  // The entry that holds the tensor `name`, which may be an alias. An error if there is none.
  const std::string& entry_of(const std::string& name) const;
  // Of all tensors, sorted; without aliases.
  std::vector<std::string> entries() const;

  // Opens the files of these entries and of the optimizer's state for them, with a thread each.
  void open(const std::vector<std::string>& entries, bool with_optimizer);

  void require_fit(const std::string& entry, const at::Tensor& tensor);
  // The same for a tensor that need not have memory.
  void require_same_shape(const std::string& entry, const at::Tensor& tensor);
  at::Tensor read(const std::string& entry);
  void read_into(const std::string& entry, const at::Tensor& tensor);

  // What the optimizer knew of the parameter that `entry` holds; nothing before its first step.
  std::vector<StateEntry> optimizer_state(const std::string& entry);

  // Compares every file with its checksum. Returns what is wrong, by file; nothing if all is well.
  std::vector<std::string> find_damage() const;

 private:
  struct StatePlace {
    std::string name = {};  // "exp_avg"
    std::size_t file = 0;   // that holds it, unless it is a scalar
    bool is_scalar = false;
  };

  std::unique_ptr<SafetensorsFile> open_verified(std::size_t index) const;
  void open_files(const std::set<std::size_t>& indices);
  SafetensorsFile& file(std::size_t index);

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::map<std::string, std::size_t, std::less<>> file_of_entry_;
  std::map<std::string, std::vector<StatePlace>, std::less<>> states_;  // by parameter
  std::vector<std::unique_ptr<SafetensorsFile>> files_;                 // null until opened
};

}  // namespace penstock
