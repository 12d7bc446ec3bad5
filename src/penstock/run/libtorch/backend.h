#pragma once

#include <functional>

#include <c10/util/intrusive_ptr.h>
#include <torch/version.h>

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace penstock {

// What moves messages in c10d: Gloo, MPI, UCC and others derive from it.
#if TORCH_VERSION_MAJOR < 2
using Backend = c10d::ProcessGroup;
#else
using Backend = c10d::Backend;
#endif
using BackendPtr = c10::intrusive_ptr<Backend>;

// Makes a backend that connects `size` ranks. They may meet in `store`, which has nothing else in
// it.
using MakeBackend =
    std::function<BackendPtr(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size)>;

}  // namespace penstock
