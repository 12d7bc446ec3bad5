#pragma once

#include <filesystem>
#include <string>

namespace penstock {

// A TCP port that nobody listens on at this moment.
int find_free_port();

// A new folder for this user alone, removed with all it holds at the end.
class PrivateFolder {
 public:
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  PrivateFolder(PrivateFolder&&) = delete;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  std::string path() const { return path_; }
  std::string path(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock
