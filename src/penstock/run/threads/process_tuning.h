#pragma once

namespace penstock {

// Keeps OpenBLAS at one thread from now on. Its pthread build uses all cores for every call,
// whatever at::set_num_threads() says, and makes ranks wait for each other. Does nothing if another
// BLAS is in use.
void use_one_blas_thread();

// Tells malloc to keep the memory that tensors give back, instead of returning it to the system and
// faulting it in again in the next microbatch. For programs; the library never does this on its
// own.
void keep_freed_memory();

}  // namespace penstock
