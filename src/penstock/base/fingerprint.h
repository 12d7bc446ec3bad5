#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

// Of texts, the same on every machine (FNV-1a). For telling things apart that differ by mistake.
class Fingerprint {
 public:
  void add(std::string_view text) {
    constexpr std::uint64_t kPrime = 1099511628211U;
    for (const char letter : text) value_ = (value_ ^ static_cast<unsigned char>(letter)) * kPrime;
  }

  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037U;
};

}  // namespace penstock
