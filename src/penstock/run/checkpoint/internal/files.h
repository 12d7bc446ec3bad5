#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "penstock/run/checkpoint/internal/sha256.h"
#include "penstock/run/checkpoint/written_file.h"

namespace penstock {

// Files and folders as the system has them. All of these throw CheckpointError, which begins with
// the path and says why.

// A file that is new, and on the disk when finish() returns.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile(OutputFile&&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  WrittenFile finish();

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t num_written_ = 0;
  Sha256 sha256_;
};

// Safe from several threads.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile(InputFile&&) = delete;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  // Fills `bytes` with what is at `offset`; an error if the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

std::string read_text(const std::filesystem::path& path);
std::string sha256_of(std::string_view text);
std::string sha256_of(const InputFile& file);

// With those above it, each of which lasts.
void make_folder(const std::filesystem::path& path);
void make_new_folder(const std::filesystem::path& path);
// Makes what was created, renamed and removed in the folder last.
void sync_folder(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
// Both names are there at any moment, each with one of the two.
void exchange_paths(const std::filesystem::path& left, const std::filesystem::path& right);
void remove_folder(const std::filesystem::path& path);

}  // namespace penstock
