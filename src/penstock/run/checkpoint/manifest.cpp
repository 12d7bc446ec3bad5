#include "penstock/run/checkpoint/manifest.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/text.h"
#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/internal/files.h"
#include "penstock/run/checkpoint/internal/strict_json.h"

namespace penstock {
namespace {

using ManifestJson = nlohmann::json;

constexpr const char* kFormat = "penstock-checkpoint";
constexpr int kVersion = 1;
constexpr int kDeepestManifest = 100;  // of the caller's own data, too
constexpr std::size_t kDigits = 64;

// The end of every manifest: a member with the checksum of all bytes in front of it.
constexpr std::string_view kBeforeChecksum = ",\n  \"sha256\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr std::size_t kEndLength = kBeforeChecksum.size() + kDigits + kAfterChecksum.size();

std::string end_of_manifest(std::string_view beginning) {
  return fmt::format("{}{}{}", kBeforeChecksum, sha256_of(beginning), kAfterChecksum);
}

const char* text_of(CheckpointContent content) {
  return content == CheckpointContent::Model ? "model" : "optimizer";
}

// Reads members, and says where one is not as it should be.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& source) : source_(source) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {}", source_, problem));
  }

  const ManifestJson& member(const ManifestJson& object, const char* name) const {
    if (!object.is_object()) fail(fmt::format("expected an object with {}", name));
    if (!object.contains(name)) fail(fmt::format("has no {}", name));
    return object.at(name);
  }

  std::string text(const ManifestJson& object, const char* name) const {
    const ManifestJson& value = member(object, name);
    if (!value.is_string()) fail(fmt::format("{} is not a text", name));
    return value.get<std::string>();
  }

  template <typename Number>
  Number number(const ManifestJson& object, const char* name) const {
    const ManifestJson& value = member(object, name);
    const bool is_right =
        value.is_number_unsigned() && std::in_range<Number>(value.get<std::uint64_t>());
    if (!is_right) fail(fmt::format("{} is not a whole number from 0 on", name));
    return value.get<Number>();
  }

  CheckpointFile file(const ManifestJson& object) const {
    CheckpointFile file;
    file.name = text(object, "name");
    // Names of other folders would let a manifest point anywhere.
    if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos ||
        file.name == kManifestName) {
      fail(fmt::format("{} cannot be the name of a file of a checkpoint", quote(file.name, 80)));
    }
    const std::string content = text(object, "content");
    if (content == text_of(CheckpointContent::Optimizer)) {
      file.content = CheckpointContent::Optimizer;
    } else if (content != text_of(CheckpointContent::Model)) {
      fail(fmt::format("content is {}; expected \"model\" or \"optimizer\"", quote(content)));
    }
    file.bytes = number<std::uint64_t>(object, "bytes");
    file.sha256 = text(object, "sha256");
    if (file.sha256.size() != kDigits ||
        file.sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail(fmt::format("sha256 of {} is not {} hexadecimal digits", quote(file.name), kDigits));
    }
    const ManifestJson& entries = member(object, "entries");
    if (!entries.is_array()) fail("entries is not a list");
    for (const ManifestJson& entry : entries) {
      if (!entry.is_string()) fail("entries is not a list of texts");
      file.entries.push_back(entry.get<std::string>());
    }
    return file;
  }

 private:
  const std::string& source_;
};

// An entry that two files hold would have two values.
void require_distinct(const std::vector<CheckpointFile>& files, const ManifestReader& reader) {
  std::set<std::string> names;
  std::set<std::pair<CheckpointContent, std::string>> entries;
  for (const CheckpointFile& file : files) {
    if (!names.insert(file.name).second) {
      reader.fail(fmt::format("lists {} twice", quote(file.name, 80)));
    }
    for (const std::string& entry : file.entries) {
      if (!entries.emplace(file.content, entry).second) {
        reader.fail(fmt::format("lists the entry {} twice", quote(entry, 80)));
      }
    }
  }
}

}  // namespace

std::string write_manifest(const CheckpointManifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["step"] = manifest.position.step;
  json["seed"] = manifest.position.seed;
  json["data"] = nlohmann::ordered_json::parse(manifest.position.data, nullptr, false);
  if (json["data"].is_discarded()) {
    throw CheckpointError(
        fmt::format("the data position {} is not a JSON text", quote(manifest.position.data, 60)));
  }
  json["optimizer"] = {{"name", manifest.optimizer}, {"scalars", manifest.scalars}};
  json["aliases"] = manifest.aliases;
  json["files"] = nlohmann::ordered_json::array();
  for (const CheckpointFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name},
                             {"content", text_of(file.content)},
                             {"bytes", file.bytes},
                             {"sha256", file.sha256},
                             {"entries", file.entries}});
  }
  std::string text = json.dump(2);
  text.resize(text.size() - std::string_view("\n}").size());
  return text + end_of_manifest(text);
}

CheckpointManifest read_manifest(std::string_view text, const std::string& source) {
  const ManifestReader reader(source);
  const std::size_t length = text.size() < kEndLength ? 0 : text.size() - kEndLength;
  if (length == 0 || text.substr(length) != end_of_manifest(text.substr(0, length))) {
    reader.fail(
        fmt::format("is damaged: its {} bytes do not have the checksum at their end", text.size()));
  }
  const ManifestJson json = parse_strict_json(text, kDeepestManifest, source);
  if (reader.text(json, "format") != kFormat) {
    reader.fail(fmt::format("format is not {}", quote(kFormat)));
  }
  if (const int version = reader.number<int>(json, "version"); version != kVersion) {
    reader.fail(fmt::format("version is {}; this program reads version {}", version, kVersion));
  }
  CheckpointManifest manifest;
  manifest.position.step = reader.number<std::int64_t>(json, "step");
  manifest.position.seed = reader.number<std::uint64_t>(json, "seed");
  manifest.position.data = reader.member(json, "data").dump();
  const ManifestJson& optimizer = reader.member(json, "optimizer");
  manifest.optimizer = reader.text(optimizer, "name");
  for (const auto& [name, value] : reader.member(optimizer, "scalars").items()) {
    if (!value.is_number_integer()) reader.fail(fmt::format("{} is not a number", quote(name, 80)));
    manifest.scalars.emplace(name, value.get<std::int64_t>());
  }
  for (const auto& [alias, entry] : reader.member(json, "aliases").items()) {
    if (!entry.is_string()) reader.fail(fmt::format("{} is not an alias", quote(alias, 80)));
    manifest.aliases.emplace(alias, entry.get<std::string>());
  }
  const ManifestJson& files = reader.member(json, "files");
  if (!files.is_array()) reader.fail("files is not a list");
  for (const ManifestJson& file : files) manifest.files.push_back(reader.file(file));
  require_distinct(manifest.files, reader);
  return manifest;
}

CheckpointManifest manifest_of(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  return read_manifest(read_text(path), path.string());
}

}  // namespace penstock
