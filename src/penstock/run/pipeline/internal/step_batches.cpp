#include "penstock/run/pipeline/internal/step_batches.h"

#include "penstock/base/assert.h"
#include "penstock/run/transport/transport.h"

namespace penstock {

const ReadyBatch& StepBatches::batch(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slot_of(step);
  if (slot.step == step) return slot.batch;
  PENSTOCK_ASSERT(slot.num_users == 0, "no rank is two lists ahead of another");
  if (has_failed_) throw StoppedError();
  has_failed_ = true;
  slot.batch = make_(step);
  has_failed_ = false;
  slot.step = step;
  slot.num_users = num_ranks_;
  return slot.batch;
}

void StepBatches::done(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slot_of(step);
  if (--slot.num_users == 0) slot.batch = {};
}

}  // namespace penstock
