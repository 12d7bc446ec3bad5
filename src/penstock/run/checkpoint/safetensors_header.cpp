#include "penstock/run/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/internal/strict_json.h"

namespace penstock {
namespace {

using HeaderJson = nlohmann::json;

constexpr const char* kMetadata = "__metadata__";

struct TypeRow {
  SafetensorsType type;
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<TypeRow, 10> kTypes = {{
    {SafetensorsType::F64, "F64", 8},
    {SafetensorsType::F32, "F32", 4},
    {SafetensorsType::F16, "F16", 2},
    {SafetensorsType::BF16, "BF16", 2},
    {SafetensorsType::I64, "I64", 8},
    {SafetensorsType::I32, "I32", 4},
    {SafetensorsType::I16, "I16", 2},
    {SafetensorsType::I8, "I8", 1},
    {SafetensorsType::U8, "U8", 1},
    {SafetensorsType::Bool, "BOOL", 1},
}};

const TypeRow& row_of(SafetensorsType type) {
  const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                 [type](const TypeRow& each) { return each.type == type; });
  PENSTOCK_ASSERT(row != kTypes.end(), "every type has a row");
  return *row;
}

// Nothing if it is not a number that fits.
std::optional<std::uint64_t> product(std::uint64_t left, std::uint64_t right) {
  if (left != 0 && right > std::numeric_limits<std::uint64_t>::max() / left) return std::nullopt;
  return left * right;
}

std::optional<std::uint64_t> bytes_of_shape(const SafetensorsEntry& entry) {
  // A size of 0 makes an empty tensor, whatever the others would make.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return 0;
  std::optional<std::uint64_t> bytes = element_bytes(entry.type);
  for (const std::int64_t size : entry.shape) {
    if (bytes) bytes = product(*bytes, static_cast<std::uint64_t>(size));
  }
  return bytes;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// The entry of one name, for messages such as `model.safetensors: "layer.weight": ...`.
class EntryReader {
 public:
  EntryReader(const std::string& name, const HeaderJson& json, const std::string& source)
      : name_(name), json_(json), source_(source) {}

  SafetensorsEntry read(std::uint64_t data_bytes) const {
    if (const auto problem = problem_of_name(name_)) fail(*problem);
    if (!json_.is_object()) fail(fmt::format("expected an object, found {}", json_.type_name()));
    for (const auto& [member, value] : json_.items()) {
      if (member != "dtype" && member != "shape" && member != "data_offsets") {
        fail(fmt::format("unknown member {}; expected dtype, shape and data_offsets",
                         quote(member)));
      }
    }
    SafetensorsEntry entry;
    entry.name = name_;
    entry.type = type();
    for (const std::uint64_t size : numbers("shape")) {
      entry.shape.push_back(static_cast<std::int64_t>(size));
    }
    const std::vector<std::uint64_t> offsets = numbers("data_offsets");
    if (offsets.size() != 2) {
      fail(fmt::format("data_offsets has {}; expected begin and end",
                       counted(static_cast<long long>(offsets.size()), "number", "numbers")));
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.begin > entry.end || entry.end > data_bytes) {
      fail(fmt::format("data_offsets [{}, {}] do not lie in the {} bytes of data that follow",
                       entry.begin, entry.end, data_bytes));
    }
    const std::optional<std::uint64_t> bytes = bytes_of_shape(entry);
    if (!bytes || *bytes != entry.end - entry.begin) {
      fail(fmt::format("data_offsets [{}, {}] make {} bytes; {} of shape {} takes {}", entry.begin,
                       entry.end, entry.end - entry.begin, to_string(entry.type),
                       shape_text(entry.shape), bytes ? std::to_string(*bytes) : "more than fit"));
    }
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {}: {}", source_, quote(name_, 80), problem));
  }

  const HeaderJson& member(const char* member_name) const {
    if (!json_.contains(member_name)) fail(fmt::format("has no {}", member_name));
    return json_.at(member_name);
  }

  SafetensorsType type() const {
    const HeaderJson& json = member("dtype");
    const std::string text = json.is_string() ? json.get<std::string>() : json.dump();
    for (const TypeRow& row : kTypes) {
      if (json.is_string() && row.name == text) return row.type;
    }
    std::vector<std::string_view> names;
    names.reserve(kTypes.size());
    for (const TypeRow& row : kTypes) names.push_back(row.name);
    fail(fmt::format("unknown dtype {}; expected one of {}", quote(text), fmt::join(names, ", ")));
  }

  std::vector<std::uint64_t> numbers(const char* member_name) const {
    const HeaderJson& list = member(member_name);
    std::vector<std::uint64_t> result;
    bool is_right = list.is_array();
    for (std::size_t index = 0; is_right && index < list.size(); ++index) {
      const HeaderJson& number = list[index];
      is_right = number.is_number_unsigned() &&
                 number.get<std::uint64_t>() <=
                     static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (is_right) result.push_back(number.get<std::uint64_t>());
    }
    if (!is_right) {
      fail(fmt::format("{} is {}; expected a list of whole numbers from 0 on", member_name,
                       quote(list.dump(), 60)));
    }
    return result;
  }

  const std::string& name_;
  const HeaderJson& json_;
  const std::string& source_;
};

std::map<std::string, std::string> read_metadata(const HeaderJson& json,
                                                 const std::string& source) {
  if (!json.is_object()) {
    throw CheckpointError(
        fmt::format("{}: {} is {}; expected an object", source, kMetadata, json.type_name()));
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) {
      throw CheckpointError(fmt::format("{}: {}: {} is {}; expected a text", source, kMetadata,
                                        quote(name), value.type_name()));
    }
    metadata.emplace(name, value.get<std::string>());
  }
  return metadata;
}

// Sorts by place; no byte may belong to two entries or to none.
void require_full_cover(std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes,
                        const std::string& source) {
  std::sort(entries.begin(), entries.end(), [](const auto& left, const auto& right) {
    return std::tie(left.begin, left.end, left.name) < std::tie(right.begin, right.end, right.name);
  });
  std::uint64_t covered = 0;
  std::string_view previous;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered) {
      throw CheckpointError(
          fmt::format("{}: {} begins at byte {} of the data, inside of {}, which "
                      "ends at {}",
                      source, quote(entry.name, 80), entry.begin, quote(previous, 80), covered));
    }
    if (entry.begin > covered) {
      throw CheckpointError(fmt::format("{}: bytes {} to {} of the data belong to no entry", source,
                                        covered, entry.begin));
    }
    covered = entry.end;
    previous = entry.name;
  }
  if (covered != data_bytes) {
    throw CheckpointError(fmt::format("{}: has {} bytes of data, but its entries end at {}", source,
                                      data_bytes, covered));
  }
}

HeaderJson to_json(const SafetensorsHeader& header) {
  HeaderJson json = HeaderJson::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) {
    json[entry.name] = {{"dtype", to_string(entry.type)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  return json;
}

}  // namespace

std::string_view to_string(SafetensorsType type) {
  return row_of(type).name;
}

std::uint64_t element_bytes(SafetensorsType type) {
  return row_of(type).bytes;
}

std::uint64_t num_bytes(const SafetensorsEntry& entry) {
  const std::optional<std::uint64_t> bytes = bytes_of_shape(entry);
  PENSTOCK_ASSERT(bytes, "the shape of a tensor that exists has a size");
  return *bytes;
}

std::optional<std::string> problem_of_name(std::string_view name) {
  if (name.empty()) return "a name must not be empty";
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    constexpr unsigned char kDelete = 0x7f;
    if (byte < ' ' || byte == kDelete) {
      return fmt::format("a name must not hold the byte 0x{:02x}", byte);
    }
  }
  try {
    static_cast<void>(HeaderJson(name).dump());
  } catch (const HeaderJson::type_error&) {
    return "a name must be UTF-8 text";
  }
  if (name == kMetadata) return "no tensor can have the name that stands for metadata";
  return std::nullopt;
}

void place_entries(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& left, const auto& right) {
    const std::uint64_t left_bytes = element_bytes(left.type);
    const std::uint64_t right_bytes = element_bytes(right.type);
    return std::tie(right_bytes, left.name) < std::tie(left_bytes, right.name);
  });
  std::uint64_t place = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.begin = place;
    place += num_bytes(entry);
    entry.end = place;
  }
}

std::string write_safetensors_header(const SafetensorsHeader& header, const std::string& source) {
  for (const SafetensorsEntry& entry : header.entries) {
    if (const auto problem = problem_of_name(entry.name)) {
      throw CheckpointError(fmt::format("{}: {}: {}", source, quote(entry.name, 80), *problem));
    }
  }
  std::string text;
  try {
    text = to_json(header).dump();
  } catch (const HeaderJson::type_error&) {
    throw CheckpointError(fmt::format("{}: the metadata is not UTF-8 text", source));
  }
  // Blanks after the text are allowed, and align the data.
  text.resize((text.size() + kSafetensorsPrefix - 1) / kSafetensorsPrefix * kSafetensorsPrefix,
              ' ');
  if (text.size() > kLargestSafetensorsHeader) {
    throw CheckpointError(
        fmt::format("{}: a header of {} bytes is larger than the {} that the "
                    "format allows; write fewer tensors per file",
                    source, text.size(), kLargestSafetensorsHeader));
  }
  const std::uint64_t data_bytes = header.entries.empty() ? 0 : header.entries.back().end;
  read_safetensors_header(text, data_bytes, source);
  std::string bytes;
  for (unsigned index = 0; index < kSafetensorsPrefix; ++index) {
    bytes += static_cast<char>((text.size() >> (8 * index)) & 0xffU);
  }
  return bytes + text;
}

std::uint64_t read_safetensors_length(std::string_view prefix, std::uint64_t file_bytes,
                                      const std::string& source) {
  if (file_bytes < kSafetensorsPrefix || prefix.size() < kSafetensorsPrefix) {
    throw CheckpointError(
        fmt::format("{}: has {} bytes; a safetensors file begins with the {} "
                    "bytes of its header's length",
                    source, file_bytes, kSafetensorsPrefix));
  }
  std::uint64_t length = 0;
  for (unsigned index = 0; index < kSafetensorsPrefix; ++index) {
    length |= std::uint64_t{static_cast<unsigned char>(prefix[index])} << (8 * index);
  }
  if (length > kLargestSafetensorsHeader) {
    throw CheckpointError(
        fmt::format("{}: says that its header has {} bytes; at most {} are allowed, so this is no "
                    "safetensors file",
                    source, length, kLargestSafetensorsHeader));
  }
  if (length > file_bytes - kSafetensorsPrefix) {
    throw CheckpointError(
        fmt::format("{}: says that its header has {} bytes, but only {} follow; "
                    "it is cut short",
                    source, length, file_bytes - kSafetensorsPrefix));
  }
  return length;
}

SafetensorsHeader read_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                          const std::string& source) {
  constexpr int kDeepest = 3;  // header, entry, shape
  if (!text.starts_with('{')) {
    throw CheckpointError(fmt::format("{}: the header begins with {}; expected \"{{\"", source,
                                      quote(text.substr(0, 1))));
  }
  const HeaderJson json = parse_strict_json(text, kDeepest, source);
  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      header.metadata = read_metadata(value, source);
    } else {
      header.entries.push_back(EntryReader(name, value, source).read(data_bytes));
    }
  }
  require_full_cover(header.entries, data_bytes, source);
  return header;
}

}  // namespace penstock
