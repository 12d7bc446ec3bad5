#pragma once

#include <string>
#include <vector>

namespace penstock {

// Some ranks of a world, in an order of their own: rank `i` of the group is ranks[i] of the world.
struct Group {
  static constexpr int kNotAMember = -1;

  std::string name;        // the same on all its ranks, and on no other group
  std::vector<int> ranks;  // of the world

  int size() const { return static_cast<int>(ranks.size()); }
  int rank_of(int world_rank) const;  // or kNotAMember
};

struct MeshShape {
  int pipeline = 1;  // ranks of one pipeline
  int data = 1;      // pipelines that train on different data
};

// Ranks as a rectangle, each in one pipeline and in one group that holds the same stages of all
// pipelines. Neighbours in the world are in the same data group, because those exchange the most.
//
//                    data 0  data 1
//   pipeline rank 0 |  0       1
//   pipeline rank 1 |  2       3
class Mesh {
 public:
  // Throws ArgumentError unless the rectangle has as many places as the world has ranks.
  Mesh(int world_size, MeshShape shape);

  MeshShape shape() const { return shape_; }
  Group pipeline_of(int world_rank) const;
  Group data_group_of(int world_rank) const;

 private:
  void require_rank(int world_rank) const;

  MeshShape shape_;
};

}  // namespace penstock
