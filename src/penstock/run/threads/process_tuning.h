#pragma once

namespace penstock {

// Keeps OpenBLAS at one thread from now on. Its pthread build uses all cores for every call,
// whatever at::set_num_threads() says, and makes ranks wait for each other. Does nothing if another
// BLAS is in use.
void use_one_blas_thread();

// Tells malloc to keep the memory that tensors give back, instead of returning it to the system and
// faulting it in again in the next microbatch. For programs; the library never does this on its
// own. On threads other than the first, glibc has heaps of 64 MB and keeps the first of them only:
// what does not fit into it is returned all the same.
void keep_freed_memory();

}  // namespace penstock
