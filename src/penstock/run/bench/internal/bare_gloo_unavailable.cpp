#include "penstock/base/assert.h"
#include "penstock/run/bench/internal/round_trips.h"
#include "penstock/run/transport/open_transport.h"

// Built in place of bare_gloo.cpp where the headers of Gloo are missing.
namespace penstock {

struct BareGloo::Impl {};

BareGloo::BareGloo(World& /*world*/, const std::string& /*name*/) {
  PENSTOCK_ASSERT(has_gloo(), "Gloo is measured where it is there");
}

BareGloo::~BareGloo() = default;

std::unique_ptr<RoundTrips> BareGloo::round_trips(const RoundTripOptions& /*options*/) {
  return nullptr;
}

MakeBackend BareGloo::maker() const {
  return nullptr;
}

}  // namespace penstock
