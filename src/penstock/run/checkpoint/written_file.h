#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// A file as it was written.
struct WrittenFile {
  std::uint64_t bytes = 0;
  std::string sha256;  // of all of them, as 64 hexadecimal digits
};

}  // namespace penstock
