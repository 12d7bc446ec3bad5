#include "penstock/run/checkpoint/internal/sha256.h"

#include <array>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "penstock/base/assert.h"

namespace penstock {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  PENSTOCK_ASSERT(
      impl_->context != nullptr && EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1,
      "OpenSSL knows SHA-256");
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(impl_->context);
}

void Sha256::add(std::span<const std::byte> bytes) {
  PENSTOCK_ASSERT(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1,
                  "bytes are added before the end");
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned length = 0;
  PENSTOCK_ASSERT(EVP_DigestFinal_ex(impl_->context, digest.data(), &length) == 1,
                  "a digest is asked for once");
  std::string text;
  for (unsigned index = 0; index < length; ++index) text += fmt::format("{:02x}", digest[index]);
  return text;
}

}  // namespace penstock
