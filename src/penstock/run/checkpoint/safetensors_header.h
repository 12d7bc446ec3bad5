#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class SafetensorsType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool };

std::string_view to_string(SafetensorsType type);  // as files spell it: "F32"
std::uint64_t element_bytes(SafetensorsType type);

// One tensor of a file: row-major, little-endian, without gaps.
struct SafetensorsEntry {
  std::string name = {};
  SafetensorsType type = SafetensorsType::F32;
  std::vector<std::int64_t> shape = {};
  std::uint64_t begin = 0;  // of its bytes, from the first byte after the header
  std::uint64_t end = 0;

  friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

std::uint64_t num_bytes(const SafetensorsEntry& entry);  // that type and shape make

// What a safetensors file says about its tensors; docs/formats/checkpoint.md has the format.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries = {};  // in the order of their bytes
  std::map<std::string, std::string> metadata = {};

  friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

// Larger ones are refused, as the format asks for.
inline constexpr std::uint64_t kLargestSafetensorsHeader = 100'000'000;
// In front of the header: its length.
inline constexpr std::uint64_t kSafetensorsPrefix = 8;

// Why no tensor can have this name, which becomes part of messages and of JSON texts; or nothing.
std::optional<std::string> problem_of_name(std::string_view name);

// Puts the entries in an order in which each is aligned to its elements, and gives them their
// places.
void place_entries(std::vector<SafetensorsEntry>& entries);

// All bytes before those of the tensors. Throws CheckpointError, beginning with `source`, if
// read_safetensors_header() would not take them.
std::string write_safetensors_header(const SafetensorsHeader& header, const std::string& source);

// The length of the JSON text, from the first bytes of a file of `file_bytes` bytes. Throws
// CheckpointError, beginning with `source`, if there cannot be such a text.
std::uint64_t read_safetensors_length(std::string_view prefix, std::uint64_t file_bytes,
                                      const std::string& source);

// The JSON text of a header that `data_bytes` bytes follow. Throws CheckpointError, with what was
// found and what was expected, unless every byte belongs to exactly one entry of known type and
// fitting shape, and every name is there once.
SafetensorsHeader read_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                          const std::string& source);

}  // namespace penstock
