#include "penstock/run/data_parallel/sharded_parameters.h"

#include <algorithm>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/run/data_parallel/internal/flat_buckets.h"
#include "penstock/run/data_parallel/internal/stage_parameters.h"
#include "penstock/run/libtorch/compat.h"
#include "penstock/run/microbatch/tree.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {
namespace {

constexpr int kReduced = 0;  // channel of a bucket, backward; forward are both for gathers in turn

}  // namespace

// A bucket of gradients on its way.
struct ShardedParameters::Reduction {
  std::size_t bucket = 0;
  int step = 0;           // of the REDUCE_GRAD
  at::Tensor own;         // the piece that is added here
  std::vector<bool> has;  // by place: whether some replica has a gradient
};

ShardedParameters::ShardedParameters(std::string owner, NamedTensors parameters,
                                     ReplicaPosition replica, const BucketOptions& options)
    : DataParallelParameters(std::move(owner), std::move(parameters)), replica_(replica) {
  const std::int64_t bucket_bytes = require_bucket_bytes(options);
  if (replica.index < 0 || replica.index >= replica.count) {
    throw ArgumentError(fmt::format("replica {} is not one of {}; replicas are numbered from 0",
                                    replica.index, counted(replica.count, "replica", "replicas")));
  }
  for (const auto& [name, parameter] : named()) make_compact(parameter);
  fingerprints_ = fingerprints_of(named());
  buckets_ = make_buckets(tensors(), replica.count, bucket_bytes);
  make_slices();
  free_parameters();
}

ShardedParameters::~ShardedParameters() = default;

void ShardedParameters::make_slices() {
  const at::NoGradGuard no_grad;
  slices_.resize(named().size());
  for (const Bucket& bucket : buckets_) {
    const at::Tensor slice = at::zeros({bucket.slice_size}, bucket.options);
    for (const BucketPlace& place : bucket.places) {
      const at::Tensor& whole = parameter(place.parameter);
      const PlacePart part = bucket.part_of(place, replica_.index);
      at::Tensor own = slice.narrow(0, part.in_slice, part.size).variable_data();
      own.copy_(in_memory_order(whole, whole).narrow(0, part.begin, part.size));
      own.set_requires_grad(whole.requires_grad());
      slices_[place.parameter] = {named()[place.parameter].first, std::move(own), part.begin};
    }
    bucket_slices_.push_back(slice);
  }
}

void ShardedParameters::free_parameters() {
  for (const auto& [name, parameter] : named()) drop_memory(parameter);
  flats_.clear();
  whole_ = Whole::No;
}

std::vector<at::Tensor> ShardedParameters::parameters() const {
  std::vector<at::Tensor> list;
  for (const ParameterSlice& slice : slices_) {
    if (slice.tensor.numel() > 0) list.push_back(slice.tensor);
  }
  return list;
}

int ShardedParameters::num_channels() const {
  return 2 * static_cast<int>(buckets_.size());
}

void ShardedParameters::connect(ReplicaLink& link, int first_channel) {
  if (link.num_replicas() != replica_.count || link.replica() != replica_.index) {
    throw ArgumentError(fmt::format(
        "{} was sharded for replica {} of {}, but the pipeline is replica {} of {}; it needs "
        "ScheduleOptions::data_group with the same numbers",
        owner(), replica_.index, replica_.count, link.replica(), link.num_replicas()));
  }
  set_link(link, first_channel);
  for (const Bucket& bucket : buckets_) link.bytes().add_slices(bucket.slice_bytes());
}

void ShardedParameters::end_step() {
  if (whole_ != Whole::No) {
    for (const Bucket& bucket : buckets_) {
      link().bytes().add_gathered(-bucket.slice_bytes() * replica_.count);
    }
    free_parameters();
  }
  num_gathered_ = 0;
  DataParallelParameters::end_step();
}

// ---- parameters ----

void ShardedParameters::unshard() {
  if (whole_ != Whole::No) {
    throw StageError(fmt::format("the parameters of {} are gathered already", owner()));
  }
  const at::NoGradGuard no_grad;
  // A replica that is ahead may begin with the next gather while others wait in this one, but not
  // with the one after it.
  const int turn = num_gathered_++ % 2;
  gather_step_ = link().step();
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    const Bucket& bucket = buckets_[index];
    flats_.push_back(at::empty({bucket.slice_size * replica_.count}, bucket.options));
    link().bytes().add_gathered(bucket.slice_bytes() * replica_.count);
    for (int replica = 0; replica < replica_.count; ++replica) {
      if (replica == replica_.index) continue;
      link().expect(replica, channel(index, turn), Direction::Forward);
      Message message = {bucket_slices_[index]};
      link().send(replica, channel(index, turn), Direction::Forward, message);
    }
    bucket.slice_of(flats_.back(), replica_.index).copy_(bucket_slices_[index]);
  }
  whole_ = Whole::Gathering;
}

void ShardedParameters::await_parameters() {
  if (whole_ != Whole::Gathering) return;
  const at::NoGradGuard no_grad;
  const int turn = (num_gathered_ - 1) % 2;
  const ReplicaWait wait = wait_for("parameters", gather_step_);
  Message message;
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    const Bucket& bucket = buckets_[index];
    for (int replica = 0; replica < replica_.count; ++replica) {
      if (replica == replica_.index) continue;
      link().receive(replica, channel(index, turn), Direction::Forward, message, wait);
      bucket.slice_of(flats_[index], replica).copy_(message[0].toTensor());
      message.clear();
    }
    const std::size_t item = bucket.options.dtype().itemsize();
    for (const BucketPlace& place : bucket.places) {
      lend_memory(flats_[index], static_cast<std::size_t>(place.offset) * item,
                  static_cast<std::size_t>(place.size) * item, parameter(place.parameter));
    }
  }
  whole_ = Whole::Yes;
}

void ShardedParameters::reshard() {
  if (whole_ == Whole::No) {
    throw StageError(fmt::format("the parameters of {} are not gathered", owner()));
  }
  await_parameters();  // what was sent has to be received, used or not
  for (const Bucket& bucket : buckets_) {
    link().bytes().add_gathered(-bucket.slice_bytes() * replica_.count);
  }
  free_parameters();
}

void ShardedParameters::require_parameters() const {
  if (whole_ == Whole::Yes) return;
  throw StageError(
      fmt::format("the parameters of {}, which is sharded, are not gathered; the program needs an "
                  "UNSHARD of the stage before they are used, as lower() adds it with sharding",
                  owner()));
}

// ---- gradients ----

void ShardedParameters::count_whole_gradients(bool are_there) {
  if (are_there == has_whole_gradients_) return;
  has_whole_gradients_ = are_there;
  for (const Bucket& bucket : buckets_) {
    if (!bucket.is_trainable) continue;
    const std::int64_t bytes = bucket.slice_bytes() * replica_.count;
    link().bytes().add_whole_gradients(are_there ? bytes : -bytes);
  }
}

void ShardedParameters::expect_gradients() {
  DataParallelParameters::expect_gradients();
  count_whole_gradients(true);
}

void ShardedParameters::drop_gradients() {
  for (const auto& [name, parameter] : named()) parameter.mutable_grad().reset();
  count_whole_gradients(false);
}

std::size_t ShardedParameters::start_reduction() {
  std::size_t count = 0;
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    if (!buckets_[index].is_trainable) continue;
    send_pieces(index);
    ++count;
  }
  count_whole_gradients(false);
  return count;
}

void ShardedParameters::send_pieces(std::size_t bucket) {
  const at::NoGradGuard no_grad;
  const Bucket& shape = buckets_[bucket];
  const auto reduction = std::make_shared<Reduction>();
  reduction->bucket = bucket;
  reduction->step = link().step();
  // One per replica and not one for all, so that each is freed as soon as it was added.
  std::vector<at::Tensor> pieces(static_cast<std::size_t>(replica_.count));
  for (at::Tensor& piece : pieces) piece = at::zeros({shape.slice_size}, shape.options);
  for (const BucketPlace& place : shape.places) {
    const at::Tensor gradient = take_gradient(place.parameter);
    reduction->has.push_back(gradient.defined());
    if (!gradient.defined()) continue;
    const at::Tensor elements = in_memory_order(gradient, parameter(place.parameter));
    for (int replica = 0; replica < replica_.count; ++replica) {
      const PlacePart part = shape.part_of(place, replica);
      if (part.size == 0) continue;
      pieces[static_cast<std::size_t>(replica)]
          .narrow(0, part.in_slice, part.size)
          .copy_(elements.narrow(0, part.begin, part.size));
    }
  }
  for (int replica = 0; replica < replica_.count; ++replica) {
    at::Tensor& piece = pieces[static_cast<std::size_t>(replica)];
    if (replica == replica_.index) {
      reduction->own = std::move(piece);
      continue;
    }
    link().expect(replica, channel(bucket, kReduced), Direction::Backward);
    send_piece(replica, channel(bucket, kReduced), piece, reduction->has);
    piece.reset();
  }
  link().defer([this, reduction] { add_pieces(*reduction); });
}

void ShardedParameters::add_pieces(const Reduction& reduction) {
  const at::NoGradGuard no_grad;
  const Bucket& shape = buckets_[reduction.bucket];
  std::vector<bool> has = reduction.has;
  const at::Tensor sum = add_in_order(channel(reduction.bucket, kReduced), reduction.own, has,
                                      wait_for("gradients", reduction.step));
  for (std::size_t index = 0; index < shape.places.size(); ++index) {
    const BucketPlace& place = shape.places[index];
    const PlacePart part = shape.part_of(place, replica_.index);
    if (part.size == 0 || !has[index]) continue;
    const at::Tensor gradient = sum.narrow(0, part.in_slice, part.size).variable_data();
    at::Tensor& earlier = slices_[place.parameter].tensor.mutable_grad();
    if (earlier.defined()) {
      earlier.add_(gradient);
    } else {
      earlier = gradient;
    }
  }
  finish_bucket();
}

// ---- whole tensors ----

NamedTensors ShardedParameters::gather(std::span<const at::Tensor> parts, const std::string& what) {
  if (!is_connected() && replica_.count > 1) {
    throw ArgumentError(
        fmt::format("{} is not part of a pipeline, so its replicas cannot be reached", owner()));
  }
  if (parts.size() != slices_.size()) {
    throw ArgumentError(fmt::format(
        "{} has {}, but there are {} to gather", owner(),
        counted(static_cast<long long>(slices_.size()), "slice", "slices"), parts.size()));
  }
  Message message;
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const at::Tensor& part = parts[index];
    if (part.defined() && part.sizes() != slices_[index].tensor.sizes()) {
      throw ArgumentError(fmt::format("the part of {} to gather is {}, but its slice is {}",
                                      quote(slices_[index].name), describe(part),
                                      describe(slices_[index].tensor)));
    }
    // A copy: threads share tensors, and read them after this replica has gone on.
    message.emplace_back(part.defined() ? part.detach().clone() : at::Tensor());
  }
  const std::vector<Message> told =
      is_connected() ? link().exchange(message, fmt::format("the {} of {}", what, owner()))
                     : std::vector<Message>{message};
  NamedTensors whole(slices_.size());
  for (const Bucket& bucket : buckets_) {
    for (const BucketPlace& place : bucket.places) {
      whole[place.parameter] = {slices_[place.parameter].name,
                                join_parts(bucket, place, told, what)};
    }
  }
  return whole;
}

at::Tensor ShardedParameters::join_parts(const Bucket& bucket, const BucketPlace& place,
                                         const std::vector<Message>& told,
                                         const std::string& what) const {
  const at::NoGradGuard no_grad;
  const at::Tensor& shape = parameter(place.parameter);
  at::Tensor whole;
  at::Tensor elements;
  bool is_missing = false;
  for (int replica = 0; replica < replica_.count; ++replica) {
    const PlacePart range = bucket.part_of(place, replica);
    if (range.size == 0 && place.size > 0) continue;
    const at::Tensor part = told[static_cast<std::size_t>(replica)][place.parameter].toTensor();
    if (!part.defined()) {
      is_missing = true;
      continue;
    }
    if (!whole.defined()) {
      whole = at::empty_strided(shape.sizes(), shape.strides(), part.options());
      elements = whole.as_strided({whole.numel()}, {1});
    }
    elements.narrow(0, range.begin, range.size).copy_(part);
  }
  if (is_missing && whole.defined()) {
    throw ArgumentError(fmt::format("some replicas have no {} of the parameter {} of {}", what,
                                    quote(slices_[place.parameter].name), owner()));
  }
  return whole;
}

NamedTensors ShardedParameters::gather_parameters() {
  std::vector<at::Tensor> parts;
  for (const ParameterSlice& slice : slices_) parts.push_back(slice.tensor);
  return gather(parts, "parameters");
}

std::vector<at::Tensor> ShardedParameters::cut(const NamedTensors& whole) const {
  std::vector<at::Tensor> parts;
  for (std::size_t index = 0; index < slices_.size(); ++index) {
    const ParameterSlice& slice = slices_[index];
    const auto found = std::find_if(whole.begin(), whole.end(), [&slice](const auto& entry) {
      return entry.first == slice.name;
    });
    if (found == whole.end()) {
      throw ArgumentError(
          fmt::format("there is no tensor for the parameter {} of {}", quote(slice.name), owner()));
    }
    parts.push_back(cut(index, found->second));
  }
  return parts;
}

at::Tensor ShardedParameters::cut(std::size_t parameter, const at::Tensor& whole) const {
  const at::NoGradGuard no_grad;
  const ParameterSlice& slice = slices_[parameter];
  const at::Tensor& shape = this->parameter(parameter);
  if (whole.sizes() != shape.sizes()) {
    throw ArgumentError(fmt::format("the tensor for the parameter {} of {} is {}; expected {}",
                                    quote(slice.name), owner(), describe(whole), describe(shape)));
  }
  return in_memory_order(whole, shape).narrow(0, slice.begin, slice.tensor.numel()).clone();
}

void ShardedParameters::load_parameters(const NamedTensors& whole) {
  const std::vector<at::Tensor> parts = cut(whole);
  const at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < parts.size(); ++index) {
    slices_[index].tensor.copy_(parts[index]);
  }
}

std::shared_ptr<ShardedParameters> shard_stage(PipelineStage& stage, ReplicaPosition replica,
                                               const BucketOptions& options) {
  require_plain(stage);
  if (const NamedTensors shared = stage.module().shared_parameters(); !shared.empty()) {
    throw ArgumentError(
        fmt::format("stage {} uses the parameter {} together with other stages, and cannot be "
                    "sharded; replicate it",
                    stage.index(), quote(shared.front().first)));
  }
  NamedTensors parameters = unique_tensors(stage.module().named_parameters());
  require_memory_of_its_own(stage, parameters);
  require_no_gradients(stage, parameters);
  auto sharded =
      std::make_shared<ShardedParameters>(name_of(stage), std::move(parameters), replica, options);
  stage.set_parameter_actions(sharded);
  return sharded;
}

ShardedParameters* sharded_parameters_of(const PipelineStage& stage) {
  return dynamic_cast<ShardedParameters*>(stage.parameter_actions());
}

}  // namespace penstock
