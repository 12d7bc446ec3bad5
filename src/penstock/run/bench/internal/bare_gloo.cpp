#include <vector>

#include <ATen/Functions.h>

#include "penstock/run/bench/internal/round_trips.h"
#include "penstock/run/libtorch/gloo.h"

namespace penstock {
namespace {

class GlooRoundTrips final : public RoundTrips {
 public:
  GlooRoundTrips(BackendPtr gloo, const RoundTripOptions& options)
      : gloo_(std::move(gloo)),
        reads_(options.reads),
        out_({at::ones({options.bytes / 4})}),
        in_({at::empty({options.bytes / 4})}) {}

  void run(int count) override {
    constexpr int kTag = 1 << 30;  // a transport over the same Gloo has smaller ones
    const int peer = 1 - gloo_->getRank();
    for (int index = 0; index < count; ++index) {
      const WorkPtr receive = gloo_->recv(in_, peer, kTag);
      if (peer == 0) take(receive);
      const WorkPtr send = gloo_->send(out_, peer, kTag);
      if (peer == 1) take(receive);
      send->wait();
    }
  }

 private:
  void take(const WorkPtr& receive) {
    receive->wait();
    if (reads_) in_.front().sum();
  }

  BackendPtr gloo_;
  bool reads_;
  std::vector<at::Tensor> out_;
  std::vector<at::Tensor> in_;
};

}  // namespace

struct BareGloo::Impl {
  BackendPtr gloo;
};

BareGloo::BareGloo(World& world, const std::string& name)
    : impl_(std::make_unique<Impl>(
          Impl{make_gloo({.store = c10::make_intrusive<c10d::PrefixStore>(
                              name, StorePtr::reclaim_copy(&world.store().native())),
                          .rank = world.rank(),
                          .size = world.size(),
                          .address = world.member(world.rank()).address,
                          .connect = {.timeout = world.timeout()}})})) {}

BareGloo::~BareGloo() = default;

MakeBackend BareGloo::maker() const {
  return [gloo = impl_->gloo](const auto& /*store*/, int /*rank*/, int /*size*/) { return gloo; };
}

std::unique_ptr<RoundTrips> BareGloo::round_trips(const RoundTripOptions& options) {
  return std::make_unique<GlooRoundTrips>(impl_->gloo, options);
}

}  // namespace penstock
