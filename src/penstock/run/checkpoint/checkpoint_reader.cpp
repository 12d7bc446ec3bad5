#include "penstock/run/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/internal/agree.h"
#include "penstock/run/checkpoint/internal/files.h"
#include "penstock/run/checkpoint/internal/way_out.h"

namespace penstock {
namespace {

// "layer.weight/exp_avg" -> "layer.weight" and "exp_avg".
std::pair<std::string, std::string> parted_at_slash(const std::string& name,
                                                    const std::filesystem::path& folder) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string::npos) {
    throw CheckpointError(fmt::format("{}: {} does not name a parameter and a part of its state",
                                      (folder / kManifestName).string(), quote(name, 80)));
  }
  return {name.substr(0, slash), name.substr(slash + 1)};
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : folder_(std::move(folder)), manifest_(manifest_of(folder_)) {
  files_.resize(manifest_.files.size());
  for (std::size_t index = 0; index < manifest_.files.size(); ++index) {
    for (const std::string& entry : manifest_.files[index].entries) {
      if (manifest_.files[index].content == CheckpointContent::Model) {
        file_of_entry_.emplace(entry, index);
      } else {
        const auto [parameter, part] = parted_at_slash(entry, folder_);
        states_[parameter].push_back({.name = part, .file = index});
      }
    }
  }
  for (const auto& [name, value] : manifest_.scalars) {
    const auto [parameter, part] = parted_at_slash(name, folder_);
    states_[parameter].push_back({.name = part, .is_scalar = true});
  }
}

const std::string& CheckpointReader::entry_of(const std::string& name) const {
  const auto entry = file_of_entry_.find(name);
  if (entry != file_of_entry_.end()) return entry->first;
  const auto alias = manifest_.aliases.find(name);
  if (alias != manifest_.aliases.end()) {
    const auto aliased = file_of_entry_.find(alias->second);
    if (aliased != file_of_entry_.end()) return aliased->first;
  }
  std::vector<std::string_view> known;
  for (const auto& [each, file] : file_of_entry_) known.push_back(each);
  const std::string_view nearest = nearest_name(name, known);
  throw CheckpointError(fmt::format(
      "{}: the checkpoint has no tensor {}{}; was it saved from another model?", folder_.string(),
      quote(name, 80),
      nearest.empty() ? "" : fmt::format(", the nearest name is {}", quote(nearest, 80))));
}

std::vector<std::string> CheckpointReader::entries() const {
  std::vector<std::string> names;
  names.reserve(file_of_entry_.size());
  for (const auto& [name, file] : file_of_entry_) names.push_back(name);
  return names;
}

std::unique_ptr<SafetensorsFile> CheckpointReader::open_verified(std::size_t index) const {
  const CheckpointFile& expected = manifest_.files[index];
  const std::filesystem::path path = folder_ / expected.name;
  {
    const InputFile file(path);
    if (file.size() != expected.bytes) {
      throw CheckpointError(fmt::format("{}: is damaged: it has {} bytes, the manifest says {}",
                                        path.string(), file.size(), expected.bytes));
    }
    if (const std::string found = sha256_of(file); found != expected.sha256) {
      throw CheckpointError(fmt::format("{}: is damaged: its SHA-256 is {}, the manifest says {}",
                                        path.string(), found, expected.sha256));
    }
  }
  auto opened = std::make_unique<SafetensorsFile>(path);
  for (const std::string& entry : expected.entries) {
    if (!opened->has(entry)) {
      throw CheckpointError(fmt::format("{}: has no tensor {}, which the manifest lists",
                                        path.string(), quote(entry, 80)));
    }
  }
  return opened;
}

void CheckpointReader::open_files(const std::set<std::size_t>& indices) {
  std::vector<std::size_t> missing;
  for (const std::size_t index : indices) {
    if (files_[index] == nullptr) missing.push_back(index);
  }
  run_together(missing.size(), [&](std::size_t position) {
    try {
      files_[missing[position]] = open_verified(missing[position]);
    } catch (const CheckpointError& error) {
      throw CheckpointError(error.what() + way_out_of_damage(folder_));
    }
  });
}

void CheckpointReader::open(const std::vector<std::string>& entries, bool with_optimizer) {
  std::set<std::size_t> indices;
  for (const std::string& entry : entries) {
    indices.insert(file_of_entry_.at(entry_of(entry)));
    const auto state = states_.find(entry);
    if (!with_optimizer || state == states_.end()) continue;
    for (const StatePlace& place : state->second) {
      if (!place.is_scalar) indices.insert(place.file);
    }
  }
  open_files(indices);
}

SafetensorsFile& CheckpointReader::file(std::size_t index) {
  open_files({index});
  return *files_[index];
}

void CheckpointReader::require_fit(const std::string& entry, const at::Tensor& tensor) {
  file(file_of_entry_.at(entry_of(entry))).require_fit(entry_of(entry), tensor);
}

void CheckpointReader::require_same_shape(const std::string& entry, const at::Tensor& tensor) {
  file(file_of_entry_.at(entry_of(entry))).require_same_shape(entry_of(entry), tensor);
}

at::Tensor CheckpointReader::read(const std::string& entry) {
  return file(file_of_entry_.at(entry_of(entry))).read(entry_of(entry));
}

void CheckpointReader::read_into(const std::string& entry, const at::Tensor& tensor) {
  file(file_of_entry_.at(entry_of(entry))).read_into(entry_of(entry), tensor);
}

std::vector<StateEntry> CheckpointReader::optimizer_state(const std::string& entry) {
  std::vector<StateEntry> result;
  const auto state = states_.find(entry);
  if (state == states_.end()) return result;
  for (const StatePlace& place : state->second) {
    const std::string name = fmt::format("{}/{}", entry, place.name);
    if (place.is_scalar) {
      result.push_back({place.name, manifest_.scalars.at(name)});
    } else {
      result.push_back({place.name, file(place.file).read(name)});
    }
  }
  return result;
}

std::vector<std::string> CheckpointReader::find_damage() const {
  std::vector<std::string> damage;
  for (std::size_t index = 0; index < manifest_.files.size(); ++index) {
    try {
      open_verified(index);
    } catch (const CheckpointError& error) {
      damage.emplace_back(error.what());
    }
  }
  return damage;
}

}  // namespace penstock
