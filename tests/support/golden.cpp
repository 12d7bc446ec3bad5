#include "tests/support/golden.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/sha.h>

namespace penstock::testing {
namespace {

const std::filesystem::path kGoldenFolder =
    std::filesystem::path(PENSTOCK_SOURCE_DIR) / "tests" / "golden";

std::vector<std::string> split_at_tabs(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char character : line) {
    if (character == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += character;
    }
  }
  return fields;
}

GoldenRow parse_row(const std::string& line) {
  constexpr std::size_t kNumFields = 8;
  const std::vector<std::string> fields = split_at_tabs(line);
  if (fields.size() < kNumFields) throw std::invalid_argument("too few fields");
  GoldenRow row;
  row.name = fields[0];
  row.shape = {.num_ranks = std::stoi(fields[1]),
               .num_microbatches = std::stoi(fields[3]),
               .stages_per_rank = std::stoi(fields[2])};
  row.is_refused = fields[4] == "error";
  if (row.is_refused) return row;
  row.compute_sha256 = fields[4];
  row.lowered_sha256 = fields[5];
  row.merged_sha256 = fields[6];
  if (fields[7] != "error") row.simulated_steps = std::stoi(fields[7]);
  return row;
}

std::filesystem::path folder_of(const GoldenRow& row) {
  return kGoldenFolder / row.name /
         fmt::format("p{}_v{}_m{}", row.shape.num_ranks, row.shape.stages_per_rank,
                     row.shape.num_microbatches);
}

}  // namespace

std::vector<GoldenRow> read_golden_index() {
  const std::filesystem::path path = kGoldenFolder / "index.tsv";
  std::ifstream file(path);
  std::vector<GoldenRow> rows;
  std::string line;
  std::getline(file, line);  // the names of the columns
  for (int number = 2; std::getline(file, line); ++number) {
    try {
      rows.push_back(parse_row(line));
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path.string(), number, error.what()));
    }
  }
  if (rows.empty()) throw std::runtime_error(fmt::format("{}: has no rows", path.string()));
  return rows;
}

bool has_golden_texts(const GoldenRow& row) {
  return !row.is_refused && std::filesystem::exists(folder_of(row));
}

std::string read_golden_text(const GoldenRow& row, const std::string& part) {
  const std::filesystem::path path = folder_of(row) / (part + ".csv");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(fmt::format("cannot open {}", path.string()));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string golden_name(const GoldenRow& row) {
  return fmt::format("{}_p{}_v{}_m{}", row.name, row.shape.num_ranks, row.shape.stages_per_rank,
                     row.shape.num_microbatches);
}

std::string sha256(const std::string& text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace penstock::testing
