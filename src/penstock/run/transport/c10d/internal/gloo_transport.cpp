#include "penstock/run/libtorch/gloo.h"
#include "penstock/run/transport/c10d/internal/c10d_transport.h"
#include "penstock/run/transport/open_transport.h"

namespace penstock {

bool has_gloo() {
  return true;
}

std::unique_ptr<Transport> make_gloo_transport(Store& store, const C10dTransportOptions& options) {
  const GlooGroup group{.store = c10::make_intrusive<c10d::PrefixStore>(
                            options.name, StorePtr::reclaim_copy(&store.native())),
                        .rank = options.rank,
                        .size = options.num_ranks,
                        .address = options.address,
                        .connect = {.timeout = options.connect_timeout, .look = options.look}};
  return make_transport_over([&group] { return make_gloo(group); }, options);
}

}  // namespace penstock
