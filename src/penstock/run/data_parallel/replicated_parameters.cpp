#include "penstock/run/data_parallel/replicated_parameters.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/data_parallel/internal/flat_buckets.h"
#include "penstock/run/data_parallel/internal/stage_parameters.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {
namespace {

constexpr int kPieces = 0;  // channels of a bucket, backward
constexpr int kSums = 1;

}  // namespace

// A bucket of gradients on its way.
struct ReplicatedParameters::Reduction {
  std::size_t bucket = 0;
  int step = 0;  // of the REDUCE_GRAD
  at::Tensor flat;
  std::vector<bool> has;  // by place: whether some replica has a gradient
};

ReplicatedParameters::ReplicatedParameters(std::string owner, NamedTensors parameters,
                                           const BucketOptions& options)
    : DataParallelParameters(std::move(owner), std::move(parameters)),
      bucket_bytes_(require_bucket_bytes(options)) {
  for (std::size_t index = 0; index < named().size(); ++index) {
    is_reduced_.push_back(parameter(index).requires_grad());
    if (!is_reduced_.back()) continue;
    trained_.push_back(parameter(index));
    index_of_trained_.push_back(index);
  }
  earlier_.resize(trained_.size());
  is_open_.resize(trained_.size());
  buckets_ = make_buckets(trained_, 1, bucket_bytes_);
}

ReplicatedParameters::~ReplicatedParameters() = default;

int ReplicatedParameters::num_channels() const {
  return 2 * static_cast<int>(buckets_.size());
}

void ReplicatedParameters::connect(ReplicaLink& link, int first_channel) {
  set_link(link, first_channel);
  buckets_ = make_buckets(trained_, link.num_replicas(), bucket_bytes_);
}

std::vector<std::int64_t> ReplicatedParameters::fingerprints() const {
  return fingerprints_of(named());
}

void ReplicatedParameters::open_gradients() {
  for (std::size_t index = 0; index < is_reduced_.size(); ++index) {
    if (is_reduced_[index] || !parameter(index).requires_grad()) continue;
    throw ArgumentError(
        fmt::format("the parameter {} of {} was frozen when the pipeline was made, and is not any "
                    "more; make the stages and the pipeline anew",
                    quote(named()[index].first), owner()));
  }
  if (link().num_replicas() == 1) return;
  for (std::size_t index = 0; index < trained_.size(); ++index) {
    earlier_[index] = std::exchange(trained_[index].mutable_grad(), at::Tensor());
    is_open_[index] = true;
  }
}

void ReplicatedParameters::drop_gradients() {
  for (std::size_t index = 0; index < trained_.size(); ++index) {
    if (!is_open_[index]) continue;
    trained_[index].mutable_grad() = std::exchange(earlier_[index], at::Tensor());
    is_open_[index] = false;
  }
}

std::size_t ReplicatedParameters::start_reduction() {
  if (link().num_replicas() == 1) return 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) send_slices(bucket);
  return buckets_.size();
}

void ReplicatedParameters::send_slices(std::size_t bucket) {
  const Bucket& shape = buckets_[bucket];
  const auto reduction = std::make_shared<Reduction>();
  reduction->bucket = bucket;
  reduction->step = link().step();
  std::vector<at::Tensor> gradients;
  for (const BucketPlace& place : shape.places) {
    gradients.push_back(take_gradient(index_of_trained_[place.parameter]));
    reduction->has.push_back(gradients.back().defined());
  }
  reduction->flat = flatten_into_bucket(shape, link().num_replicas(), gradients, trained_);
  for (int replica = 0; replica < link().num_replicas(); ++replica) {
    if (replica == link().replica()) continue;
    link().expect(replica, channel(bucket, kPieces), Direction::Backward);
    link().expect(replica, channel(bucket, kSums), Direction::Backward);
    send_piece(replica, channel(bucket, kPieces), shape.slice_of(reduction->flat, replica),
               reduction->has);
  }
  link().defer([this, reduction] { add_slices(reduction); });
}

void ReplicatedParameters::add_slices(const std::shared_ptr<Reduction>& reduction) {
  const Bucket& shape = buckets_[reduction->bucket];
  const at::Tensor own = shape.slice_of(reduction->flat, link().replica());
  const at::Tensor sum = add_in_order(channel(reduction->bucket, kPieces), own, reduction->has,
                                      wait_for("gradients", reduction->step));
  for (int replica = 0; replica < link().num_replicas(); ++replica) {
    if (replica == link().replica()) continue;
    Message message = {sum};
    link().send(replica, channel(reduction->bucket, kSums), Direction::Backward, message);
  }
  // A copy, because threads that got the sum still read it when somebody changes this gradient.
  const at::NoGradGuard no_grad;
  own.copy_(sum);
  link().defer([this, reduction] { take_sums(*reduction); });
}

void ReplicatedParameters::take_sums(const Reduction& reduction) {
  const Bucket& shape = buckets_[reduction.bucket];
  const at::NoGradGuard no_grad;
  Message message;
  for (int replica = 0; replica < link().num_replicas(); ++replica) {
    if (replica == link().replica()) continue;
    link().receive(replica, channel(reduction.bucket, kSums), Direction::Backward, message,
                   wait_for("gradients", reduction.step));
    // Who has sent the sum of a slice does not read this replica's part of it any more.
    shape.slice_of(reduction.flat, replica).copy_(message[0].toTensor());
    message.clear();
  }
  for (std::size_t index = 0; index < shape.places.size(); ++index) {
    const BucketPlace& place = shape.places[index];
    give_back(place.parameter,
              reduction.has[index]
                  ? view_as_parameter(reduction.flat, place.offset, trained_[place.parameter])
                  : at::Tensor());
  }
  finish_bucket();
}

void ReplicatedParameters::give_back(std::size_t parameter, const at::Tensor& sum) {
  at::Tensor earlier = std::exchange(earlier_[parameter], at::Tensor());
  is_open_[parameter] = false;
  if (earlier.defined() && sum.defined()) earlier.add_(sum);
  trained_[parameter].mutable_grad() = earlier.defined() ? earlier : sum;
}

std::shared_ptr<ReplicatedParameters> replicate_stage(PipelineStage& stage,
                                                      const BucketOptions& options) {
  require_plain(stage);
  auto parameters = std::make_shared<ReplicatedParameters>(
      name_of(stage),
      unique_tensors(stage.module().named_parameters(), stage.module().shared_parameters()),
      options);
  stage.set_parameter_actions(parameters);
  return parameters;
}

}  // namespace penstock
