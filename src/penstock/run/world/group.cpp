#include "penstock/run/world/group.h"

#include <algorithm>

#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

int Group::rank_of(int world_rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), world_rank);
  return found == ranks.end() ? kNotAMember : static_cast<int>(found - ranks.begin());
}

Mesh::Mesh(int world_size, MeshShape shape) : shape_(shape) {
  if (shape.pipeline >= 1 && shape.data >= 1 && shape.pipeline * shape.data == world_size) return;
  throw ArgumentError(fmt::format(
      "a mesh of {} x {} needs {}, but there are {}",
      counted(shape.pipeline, "pipeline rank", "pipeline ranks"),
      counted(shape.data, "pipeline", "pipelines"),
      counted(static_cast<long long>(shape.pipeline) * shape.data, "rank", "ranks"), world_size));
}

void Mesh::require_rank(int world_rank) const {
  PENSTOCK_ASSERT(world_rank >= 0 && world_rank < shape_.pipeline * shape_.data,
                  "a mesh is asked for ranks that it has");
}

Group Mesh::pipeline_of(int world_rank) const {
  require_rank(world_rank);
  const int column = world_rank % shape_.data;
  Group group{.name = fmt::format("pipeline {}", column), .ranks = {}};
  for (int row = 0; row < shape_.pipeline; ++row) group.ranks.push_back(row * shape_.data + column);
  return group;
}

Group Mesh::data_group_of(int world_rank) const {
  require_rank(world_rank);
  const int row = world_rank / shape_.data;
  Group group{.name = fmt::format("data {}", row), .ranks = {}};
  for (int column = 0; column < shape_.data; ++column) {
    group.ranks.push_back(row * shape_.data + column);
  }
  return group;
}

}  // namespace penstock
