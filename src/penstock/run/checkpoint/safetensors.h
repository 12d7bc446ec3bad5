#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "penstock/run/checkpoint/safetensors_header.h"
#include "penstock/run/checkpoint/written_file.h"
#include "penstock/run/stage/stage_module.h"

namespace penstock {

class InputFile;

// A file of named tensors that every tool of the ecosystem reads. Safe from several threads.
class SafetensorsFile {
 public:
  // Reads the header alone. Throws CheckpointError, which begins with the path, if the file cannot
  // be read or is not one of this format to the last byte.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  SafetensorsFile(SafetensorsFile&&) = delete;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  ~SafetensorsFile();

  const SafetensorsHeader& header() const { return header_; }
  bool has(std::string_view name) const { return entries_.contains(name); }

  // Throws CheckpointError unless `tensor` has the type and the shape of the entry.
  void require_fit(std::string_view name, const at::Tensor& tensor) const;
  // The same for a tensor that need not have memory.
  void require_same_shape(std::string_view name, const at::Tensor& tensor) const;

  // A new tensor, on the CPU.
  at::Tensor read(std::string_view name) const;
  // Into a tensor that is there, straight if it lies in one piece on the CPU.
  void read_into(std::string_view name, const at::Tensor& tensor) const;

 private:
  const SafetensorsEntry& entry(std::string_view name) const;
  void read_bytes(const SafetensorsEntry& entry, const at::Tensor& tensor) const;

  std::unique_ptr<const InputFile> file_;
  std::uint64_t data_offset_ = 0;
  SafetensorsHeader header_;
  std::map<std::string, const SafetensorsEntry*, std::less<>> entries_;
};

// Writes a new file, which is on the disk on return. Throws CheckpointError if it is there already
// or cannot be written, and if a tensor has a type that the format does not.
WrittenFile write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace penstock
