#include "penstock/run/autograd/internal/node_table.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

TEST(NodeTable, NumbersEachNodeOnce) {
  std::vector<std::uint64_t> nodes(1000);
  NodeTable table;
  for (int round = 0; round < 3; ++round) {
    table.clear();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const NodeTable::Entry entry = table.insert(&nodes[i], i);
      EXPECT_TRUE(entry.is_new);
      EXPECT_EQ(entry.number, i);
    }
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const NodeTable::Entry entry = table.insert(&nodes[i], 9999);
      EXPECT_FALSE(entry.is_new);
      EXPECT_EQ(entry.number, i);
      EXPECT_EQ(table.at(&nodes[i]), i);
    }
  }
}

}  // namespace
}  // namespace penstock::testing
