#include <ATen/Parallel.h>
#include <gtest/gtest.h>

// Part of every test program that uses libtorch, which also share its precompiled header.
namespace penstock {
namespace {

// Sums depend on the number of threads inside of an operator; with one, they are the same on every
// machine and in every rank.
class OneIntraOpThread : public ::testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};

const ::testing::Environment* const one_intra_op_thread =
    ::testing::AddGlobalTestEnvironment(new OneIntraOpThread);

}  // namespace
}  // namespace penstock
