#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/generators/shape.h"

namespace penstock::testing {

// One configuration of tests/golden/index.tsv: what torch.distributed.pipelining makes of it.
struct GoldenRow {
  std::string name;
  ScheduleShape shape;
  bool is_refused = false;  // by the reference; the rest is empty then
  std::string compute_sha256;
  std::string lowered_sha256;
  std::string merged_sha256;
  std::optional<int> simulated_steps;  // nothing where the reference's simulator gives up
};

// All rows of the index. Throws std::runtime_error, with the line, if one cannot be read.
std::vector<GoldenRow> read_golden_index();

// The configurations whose full texts are there: index rows with a folder.
bool has_golden_texts(const GoldenRow& row);

// The text of `part` ("compute", "lowered" or "merged") of a row that has_golden_texts().
std::string read_golden_text(const GoldenRow& row, const std::string& part);

// "InterleavedZeroBubble_p4_v2_m8", fit for the name of a test.
std::string golden_name(const GoldenRow& row);

// In lower-case hexadecimal digits, as sha256sum prints it.
std::string sha256(const std::string& text);

}  // namespace penstock::testing
