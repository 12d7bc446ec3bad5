#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace penstock {

// OpenSSL's SHA-256 of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  Sha256(Sha256&&) = delete;
  Sha256& operator=(Sha256&&) = delete;
  ~Sha256();

  void add(std::span<const std::byte> bytes);
  std::string finish();  // as 64 hexadecimal digits; nothing may be added afterwards

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
