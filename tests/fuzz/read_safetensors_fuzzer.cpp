#include <cstddef>
#include <cstdint>
#include <string_view>

#include "penstock/run/checkpoint/checkpoint_error.h"
#include "penstock/run/checkpoint/safetensors_header.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using penstock::kSafetensorsPrefix;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const std::uint64_t length =
        penstock::read_safetensors_length(file.substr(0, kSafetensorsPrefix), size, "fuzz");
    const std::string_view text = file.substr(kSafetensorsPrefix, length);
    const std::uint64_t data_bytes = size - kSafetensorsPrefix - text.size();
    const penstock::SafetensorsHeader header =
        penstock::read_safetensors_header(text, data_bytes, "fuzz");
    std::uint64_t covered = 0;
    for (const penstock::SafetensorsEntry& entry : header.entries) {
      penstock::require(entry.begin == covered &&
                        penstock::num_bytes(entry) == entry.end - covered);
      covered = entry.end;
    }
    penstock::require(covered == data_bytes);
    const std::string written = penstock::write_safetensors_header(header, "again");
    const std::string_view again = std::string_view(written).substr(kSafetensorsPrefix);
    penstock::require(penstock::read_safetensors_header(again, data_bytes, "again") == header);
  } catch (const penstock::CheckpointError& error) {
    penstock::require(std::string_view(error.what()).starts_with("fuzz: "));
  }
  return 0;
}
