#pragma once

#include <string>

namespace penstock {

// Keeps OpenBLAS at one thread from now on. Its pthread build uses all cores for every call,
// whatever at::set_num_threads() says, and makes ranks wait for each other. Does nothing if another
// BLAS is in use.
void use_one_blas_thread();

// An OpenBLAS that is older than the processor takes it for one of 2004, and multiplies at a
// fraction of its speed. Then, what to call the processor instead: a value for the environment
// variable OPENBLAS_CORETYPE, which OpenBLAS reads when it is loaded. Else empty.
std::string better_blas_core();

// Tells malloc to keep the memory that tensors give back, instead of returning it to the system and
// faulting it in again in the next microbatch. For programs; the library never does this on its
// own.
void keep_freed_memory();

}  // namespace penstock
