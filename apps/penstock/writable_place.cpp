#include "writable_place.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

// Why no file can be made in `folder`; empty if one can.
std::string obstacle_in(const std::filesystem::path& folder) {
  return access(folder.c_str(), W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

std::filesystem::path nearest_existing(std::filesystem::path path) {
  std::error_code ignored;  // what cannot be looked at is not there, for us
  while (path.has_relative_path() && !std::filesystem::exists(path, ignored)) {
    path = path.parent_path();
  }
  return path;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why,
                         const std::string& way_out) {
  throw Error(fmt::format("cannot write {}: {}; {}", quote(path, 200), why, way_out));
}

}  // namespace

void require_writable_file(const std::string& path, const std::string& way_out) {
  if (path == "-") return;
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) refuse(path, "it is a directory", way_out);
  const bool is_device =
      std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (is_device && access(path.c_str(), W_OK) != 0) refuse(path, std::strerror(errno), way_out);
  if (is_device) return;
  // The file is written beside its place and renamed, also if there is one that a link leads to.
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, ignored);
  const std::string why = obstacle_in(std::filesystem::absolute(target).parent_path());
  if (!why.empty()) refuse(path, why, way_out);
}

void require_writable_folder(const std::string& path, const std::string& way_out) {
  const std::filesystem::path there = nearest_existing(std::filesystem::absolute(path));
  std::error_code ignored;
  const std::string why = std::filesystem::is_directory(there, ignored)
                              ? obstacle_in(there)
                              : fmt::format("{} is not a directory", quote(there.string(), 200));
  if (!why.empty()) refuse(path, why, way_out);
}

}  // namespace penstock
