#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "penstock/run/stage/make_stage_module.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {

// All stages of a model, one per module, from the first to the last.
StageList make_stages(const std::vector<std::shared_ptr<StageModule>>& modules);

// The same of modules and callables as make_stage_module() takes them.
template <typename... Modules>
StageList make_stages(Modules... modules) {
  const std::vector<std::shared_ptr<StageModule>> list = {make_stage_module(std::move(modules))...};
  return make_stages(list);
}

}  // namespace penstock
