#include "penstock/run/stage/make_stages.h"

namespace penstock {

StageList make_stages(const std::vector<std::shared_ptr<StageModule>>& modules) {
  StageList stages;
  const int num_stages = static_cast<int>(modules.size());
  for (const auto& module : modules) {
    const int index = static_cast<int>(stages.size());
    stages.push_back(std::make_shared<PipelineStage>(
        module, StagePosition{.index = index, .num_stages = num_stages}));
  }
  return stages;
}

}  // namespace penstock
