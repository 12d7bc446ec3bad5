#include "penstock/run/data_parallel/data_parallel_parameters.h"

#include <utility>

#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "penstock/base/assert.h"
#include "penstock/base/text.h"
#include "penstock/run/stage/pipeline_stage.h"

namespace penstock {

DataParallelParameters::DataParallelParameters(std::string owner, NamedTensors parameters)
    : owner_(std::move(owner)), parameters_(std::move(parameters)) {}

std::vector<std::string> DataParallelParameters::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters_) names.push_back(name);
  return names;
}

std::vector<at::Tensor> DataParallelParameters::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters_) tensors.push_back(tensor);
  return tensors;
}

void DataParallelParameters::set_link(ReplicaLink& link, int first_channel) {
  link_ = &link;
  first_channel_ = first_channel;
}

// Two numbers per bucket.
int DataParallelParameters::channel(std::size_t bucket, int number) const {
  return first_channel_ + 2 * static_cast<int>(bucket) + number;
}

void DataParallelParameters::begin_step(bool is_training) {
  if (!is_training) return;
  gradients_ = Gradients::Open;
  open_gradients();
}

void DataParallelParameters::end_step() {
  if (gradients_ != Gradients::Open && gradients_ != Gradients::Reducing) return;
  gradients_ = Gradients::Lost;
  drop_gradients();
}

void DataParallelParameters::reduce_gradients() {
  if (gradients_ != Gradients::Open) {
    throw StageError(fmt::format(
        "the gradients of {} are reduced already; there is one REDUCE_GRAD per step", owner_));
  }
  gradients_ = Gradients::Reducing;
  // What was begun by an earlier action has had time to arrive.
  const std::size_t num_earlier = link_->num_deferred();
  num_open_buckets_ = start_reduction();
  if (num_open_buckets_ == 0) gradients_ = Gradients::Final;
  link_->run_deferred(num_earlier);
}

void DataParallelParameters::finish_bucket() {
  if (--num_open_buckets_ == 0) gradients_ = Gradients::Final;
}

void DataParallelParameters::expect_gradients() {
  if (gradients_ == Gradients::Open) return;
  throw StageError(fmt::format(
      "a backward of {} comes after its REDUCE_GRAD, so its gradients would be lost", owner_));
}

void DataParallelParameters::require_final_gradients() const {
  switch (gradients_) {
    case Gradients::Final:
      return;
    case Gradients::Open:
      throw StageError(fmt::format(
          "the gradients of {} are not final: its REDUCE_GRAD has not run in this step", owner_));
    case Gradients::Reducing:
      throw StageError(
          fmt::format("the gradients of {} are not final: those of other replicas are on their way "
                      "until the list of the rank ends",
                      owner_));
    case Gradients::Lost:
      throw StageError(fmt::format(
          "the gradients of {} are not final: the last step failed before they were", owner_));
  }
}

ReplicaWait DataParallelParameters::wait_for(const char* what, int step) const {
  return {.what = fmt::format("the {} of {}", what, owner_), .step = step};
}

at::Tensor DataParallelParameters::take_gradient(std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  at::Tensor gradient = std::move(tensor.mutable_grad());
  tensor.mutable_grad().reset();
  if (gradient.defined() && gradient.layout() != at::kStrided) {
    throw StageError(
        fmt::format("the gradient of the parameter {} of {} is sparse; replicas add "
                    "up dense gradients only",
                    quote(name), owner_));
  }
  return gradient;
}

void DataParallelParameters::send_piece(int to_replica, int channel, const at::Tensor& piece,
                                        const std::vector<bool>& has) const {
  c10::List<bool> list;
  list.reserve(has.size());
  for (const bool is_there : has) list.push_back(is_there);
  Message message = {piece, std::move(list)};
  link_->send(to_replica, channel, Direction::Backward, message);
}

at::Tensor DataParallelParameters::add_in_order(int channel, const at::Tensor& own,
                                                std::vector<bool>& has,
                                                const ReplicaWait& wait) const {
  const at::NoGradGuard no_grad;
  Message message;
  at::Tensor sum;
  for (int replica = 0; replica < link_->num_replicas(); ++replica) {
    at::Tensor piece = own;
    if (replica != link_->replica()) {
      link_->receive(replica, channel, Direction::Backward, message, wait);
      piece = message[0].toTensor();
      const c10::List<bool> list = message[1].toBoolList();
      PENSTOCK_ASSERT(list.size() == has.size(), "replicas have the same buckets");
      for (std::size_t place = 0; place < has.size(); ++place) {
        if (list.get(place)) has[place] = true;
      }
      message.clear();
    }
    if (replica == 0) {
      sum = std::move(piece);
    } else if (replica == 1) {
      sum = at::add(sum, piece);  // neither of the two is this object's to change
    } else {
      sum.add_(piece);
    }
  }
  return sum;
}

}  // namespace penstock
