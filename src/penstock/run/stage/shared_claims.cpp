#include "penstock/run/stage/shared_claims.h"

#include "penstock/run/stage/stage_module.h"

namespace penstock {

bool SharedClaims::claim(const at::Tensor& parameter,
                         const std::shared_ptr<const StageModule>& module) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const StageModule>& owner = owners_[parameter.unsafeGetTensorImpl()];
  if (owner.expired()) owner = module;
  return owner.lock() == module;
}

}  // namespace penstock
