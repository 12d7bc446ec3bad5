#include "penstock/run/transport/c10d/internal/c10d_transport.h"
#include "penstock/run/transport/open_transport.h"

// Built in place of gloo_transport.cpp where the headers of Gloo are missing.
namespace penstock {

bool has_gloo() {
  return false;
}

std::unique_ptr<Transport> make_gloo_transport(Store& /*store*/,
                                               const C10dTransportOptions& /*options*/) {
  throw TransportError(
      "ranks on different hosts need Gloo, which this Penstock was built without; install the "
      "headers of Gloo (Debian: libgloo-dev) and build it again");
}

}  // namespace penstock
