#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/run/libtorch/c10d.h"

// Gloo as libtorch 1.13 and 2.x have it: held as what it is, because its base class differs.
namespace penstock {

using GlooPtr = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct GlooGroup {
  StorePtr store;
  int rank = 0;
  int size = 1;
  std::string address;                  // of this host, that the other ranks connect to
  std::chrono::milliseconds timeout{};  // for all to be connected
};

inline GlooPtr make_gloo(const GlooGroup& group) {
  auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
  // Without a device, Gloo takes the address that the host name has, whatever that is.
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(group.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(group.store, group.rank, group.size, options);
}

}  // namespace penstock
