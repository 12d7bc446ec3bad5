#include "penstock/run/checkpoint/internal/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "penstock/run/checkpoint/checkpoint_error.h"

namespace penstock {
namespace {

// What a user can do about it, where that is not plain.
const char* way_out(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; make room or choose another folder";
    case EROFS:
    case EACCES:
    case EPERM:
      return "; choose a folder that can be written to";
    default:
      return "";
  }
}

[[noreturn]] void fail_at(const std::filesystem::path& path, std::string_view problem, int error) {
  throw CheckpointError(fmt::format("{}: {}: {}{}", path.string(), problem,
                                    std::generic_category().message(error), way_out(error)));
}

// Those that exist can be read or not; there is nothing to choose.
[[noreturn]] void fail_reading(const std::filesystem::path& path, int error) {
  throw CheckpointError(
      fmt::format("{}: cannot be read: {}", path.string(), std::generic_category().message(error)));
}

constexpr std::size_t kPiece = std::size_t{1} << 20U;

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail_at(path_, "cannot be created", errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // A piece at a time, so that the checksum reads what is still in the cache.
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kPiece));
    const ssize_t count = ::write(descriptor_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail_at(path_, fmt::format("cannot be written beyond {} bytes", num_written_), errno);
    }
    sha256_.add(piece.first(static_cast<std::size_t>(count)));
    num_written_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

WrittenFile OutputFile::finish() {
  if (fsync(descriptor_) != 0) fail_at(path_, "cannot be brought to the disk", errno);
  if (close(std::exchange(descriptor_, -1)) != 0) fail_at(path_, "cannot be closed", errno);
  return {.bytes = num_written_, .sha256 = sha256_.finish()};
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail_reading(path_, errno);
  struct stat status = {};
  const int error = fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    if (error != 0) fail_reading(path_, error);
    throw CheckpointError(fmt::format("{}: cannot be read: it is not a file", path_.string()));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  close(descriptor_);
}

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_reading(path_, errno);
    if (count == 0) {
      throw CheckpointError(
          fmt::format("{}: ends at byte {}, before what is read there", path_.string(), offset));
    }
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string read_text(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string sha256_of(std::string_view text) {
  Sha256 sha256;
  sha256.add(std::as_bytes(std::span(text)));
  return sha256.finish();
}

std::string sha256_of(const InputFile& file) {
  Sha256 sha256;
  std::vector<std::byte> piece(std::min<std::uint64_t>(file.size(), kPiece));
  for (std::uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
    piece.resize(std::min<std::uint64_t>(file.size() - offset, kPiece));
    file.read_at(offset, piece);
    sha256.add(piece);
  }
  return sha256.finish();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::vector<std::filesystem::path> parents;  // of all folders that are new
  for (std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal();
       !std::filesystem::exists(folder, error); folder = folder.parent_path()) {
    parents.push_back(folder.parent_path());
  }
  std::filesystem::create_directories(path, error);
  if (error) fail_at(path, "cannot be created", error.value());
  for (const std::filesystem::path& parent : parents) sync_folder(parent);
}

void make_new_folder(const std::filesystem::path& path) {
  if (mkdir(path.c_str(), 0777) != 0) fail_at(path, "cannot be created", errno);
}

void sync_folder(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_reading(path, errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  if (error != 0) fail_at(path, "cannot be brought to the disk", error);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail_at(from, fmt::format("cannot be renamed to {}", to.filename().string()), errno);
  }
}

void exchange_paths(const std::filesystem::path& left, const std::filesystem::path& right) {
  if (renameat2(AT_FDCWD, left.c_str(), AT_FDCWD, right.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) {
    fail_at(left, fmt::format("cannot be renamed to {}", right.filename().string()), errno);
  }
  throw CheckpointError(
      fmt::format("{}: is there already, and this file system cannot put another "
                  "one in its place; remove it first",
                  right.string()));
}

void remove_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail_at(path, "cannot be removed", error.value());
}

}  // namespace penstock
