#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::testing {

// The names of all that the folder holds, sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);

// A new folder that is removed, with all it holds, at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  TemporaryFolder(TemporaryFolder&&) = delete;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  // The path of `name` in this folder.
  std::string path(std::string_view name) const { return path_ / name; }

  // Writes a file, with the folders it lies in, and returns its path.
  std::string write(std::string_view name, std::string_view text) const;

  // The names of all it holds, sorted.
  std::vector<std::string> names() const { return names_in(path_); }

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);

}  // namespace penstock::testing
