#include "penstock/run/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/internal/unfinished.h"
#include "penstock/run/checkpoint/internal/way_out.h"
#include "penstock/run/checkpoint/manifest.h"

namespace penstock {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial-";
constexpr std::string_view kRemoving = ".removing-";

// What a name in the folder of a run stands for.
struct FolderName {
  std::int64_t step = -1;      // negative: nothing of ours
  std::string_view rest = {};  // after the number
};

FolderName parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0) return {};
  const std::string_view rest(end, static_cast<std::size_t>(digits.data() + digits.size() - end));
  // "step-7" is not how a checkpoint is called, so it is not one of ours.
  const std::string whole = checkpoint_path({}, step).string();
  if (name.substr(0, name.size() - rest.size()) != whole) return {};
  return {.step = step, .rest = rest};
}

bool is_leftover(std::string_view rest) {
  return rest.starts_with(kPartial) || rest.starts_with(kRemoving);
}

// (step, path) of everything of ours that `is_wanted` by what follows the number.
std::vector<std::pair<std::int64_t, std::filesystem::path>> find_names(
    const std::filesystem::path& folder, bool (*is_wanted)(std::string_view rest)) {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> found;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const FolderName parsed = parse_name(name);
    if (parsed.step >= 0 && is_wanted(parsed.rest)) found.emplace_back(parsed.step, *entries);
  }
  if (error) {
    throw CheckpointError(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::filesystem::path with_ending(const std::filesystem::path& checkpoint, std::string_view ending,
                                  std::string_view token) {
  return fmt::format("{}{}{}", checkpoint.string(), ending, token);
}

}  // namespace

std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step) {
  return folder / fmt::format("{}{:08}", kPrefix, step);
}

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] :
       find_names(folder, [](std::string_view rest) { return rest.empty(); })) {
    paths.push_back(std::move(path));
  }
  return paths;
}

std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder) {
  const std::vector<std::filesystem::path> paths = list_checkpoints(folder);
  if (paths.empty()) return std::nullopt;
  try {
    manifest_of(paths.back());
  } catch (const CheckpointError& error) {
    throw CheckpointError(error.what() + way_out_of_damage(paths.back()));
  }
  return paths.back();
}

std::string way_out_of_damage(const std::filesystem::path& path) {
  const std::vector<std::filesystem::path> paths = list_checkpoints(path.parent_path());
  const auto found = std::find(paths.begin(), paths.end(), path);
  if (found == paths.begin() || found == paths.end()) return "";
  return fmt::format("; remove {} to go on from the checkpoint before it", path.string());
}

std::filesystem::path unfinished_path(const std::filesystem::path& folder, std::int64_t step,
                                      const std::string& token) {
  return with_ending(checkpoint_path(folder, step), kPartial, token);
}

UnfinishedCheckpoint::UnfinishedCheckpoint(const std::filesystem::path& folder, std::int64_t step,
                                           std::string token)
    : folder_(folder),
      place_(checkpoint_path(folder, step)),
      path_(unfinished_path(folder, step, token)),
      token_(std::move(token)) {
  make_folder(folder_);
  for (const auto& [old_step, path] : find_names(folder_, is_leftover)) remove_folder(path);
  make_new_folder(path_);
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void UnfinishedCheckpoint::commit() {
  sync_folder(path_);
  if (std::filesystem::exists(place_)) {
    // The one that was there goes with this object.
    exchange_paths(path_, place_);
  } else {
    rename_path(path_, place_);
  }
  sync_folder(folder_);
}

void UnfinishedCheckpoint::prune(int keep) const {
  std::vector<std::filesystem::path> others = list_checkpoints(folder_);
  std::erase(others, place_);
  const auto num_kept = static_cast<std::size_t>(keep - 1);
  for (std::size_t index = 0; index + num_kept < others.size(); ++index) {
    const std::filesystem::path going = with_ending(others[index], kRemoving, token_);
    rename_path(others[index], going);
    sync_folder(folder_);
    remove_folder(going);
  }
}

}  // namespace penstock
