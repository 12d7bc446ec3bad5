#include "penstock/run/world/internal/local_token.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "penstock/base/random_token.h"
#include "penstock/base/text.h"
#include "penstock/run/world/store.h"

namespace penstock {
namespace {

constexpr mode_t kForItsUser = 0700;
constexpr mode_t kForOthers = 0077;

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view problem) {
  throw WorldError(
      fmt::format("ranks without a token leave one for each other in {}, but {}; set "
                  "PENSTOCK_TOKEN to the same random text for all of them",
                  quote(path.string(), 200), problem));
}

// False if there is no such folder.
bool is_private(const std::filesystem::path& folder) {
  struct stat status = {};
  if (lstat(folder.c_str(), &status) != 0) {
    if (errno == ENOENT) return false;
    refuse(folder, std::strerror(errno));
  }
  if (!S_ISDIR(status.st_mode)) refuse(folder, "that is no folder");
  if (status.st_uid != geteuid()) refuse(folder, "that belongs to somebody else");
  if ((status.st_mode & kForOthers) != 0) refuse(folder, "others may look into it");
  return true;
}

}  // namespace

std::filesystem::path local_token_folder() {
  return fmt::format("/tmp/penstock-{}", geteuid());
}

std::filesystem::path local_token_path(const std::filesystem::path& folder, int port) {
  struct stat network = {};
  stat("/proc/self/ns/net", &network);  // ports of another one are others; 0 if that is not known
  return folder / fmt::format("token-{}-{}", network.st_ino, port);
}

LocalToken::LocalToken(const std::filesystem::path& folder, int port)
    : path_(local_token_path(folder, port)), text_(random_token()) {
  if (mkdir(folder.c_str(), kForItsUser) != 0 && errno != EEXIST) {
    refuse(folder, std::strerror(errno));
  }
  is_private(folder);
}

LocalToken::~LocalToken() {
  std::error_code ignored;  // a file that is left tells nobody anything
  if (is_published_) std::filesystem::remove(path_, ignored);
}

void LocalToken::publish() {
  const std::filesystem::path new_path = path_.string() + ".new";
  std::ofstream file(new_path);
  file << text_;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(new_path, path_, error);  // whole or not at all
  if (!file || error) refuse(path_, "it cannot be written");
  is_published_ = true;
}

std::string read_local_token(const std::filesystem::path& folder, int port) {
  if (!is_private(folder)) return {};
  std::string text;
  std::getline(std::ifstream(local_token_path(folder, port)), text);
  return text;
}

}  // namespace penstock
