#include "penstock/run/training/internal/staggered_rank.h"

#include <cstddef>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/libtorch/cause.h"
#include "penstock/run/optimizer/learning_rate.h"
#include "penstock/run/training/square_sum.h"

namespace penstock {
namespace {

bool is_as_guessed(const GradientNorm& gradients) {
  return gradients.is_finite() && !gradients.is_clipped();
}

}  // namespace

StaggeredRank::StaggeredRank(RankModel& model, StaggeredRules rules, std::int64_t first_step)
    : model_(model),
      rules_(std::move(rules)),
      first_step_(first_step),
      gradients_(model.parameters.size()) {}

at::Tensor StaggeredRank::tell_replicas() {
  return gradient_squares(model_.counted.slices).to_tensor();
}

bool StaggeredRank::list_ended(std::int64_t step, std::span<const at::Tensor> from_replicas,
                               RankExchange& exchange) {
  if (guessed_ && !settle_guess(exchange)) return false;
  tell(from_replicas, exchange);
  if (is_guessing_) {
    guess(step);
    return true;
  }
  const GradientNorm gradients = hear(exchange);
  update(step, gradients);
  is_guessing_ = is_as_guessed(gradients);
  settle(step, gradients, false);
  return true;
}

void StaggeredRank::series_ended(RankExchange& exchange) {
  if (guessed_) settle_guess(exchange);
}

void StaggeredRank::tell(std::span<const at::Tensor> from_replicas, RankExchange& exchange) const {
  SquareSum squares = gradient_squares(model_.counted.whole);
  for (const at::Tensor& slices : from_replicas) squares += SquareSum::from_tensor(slices);
  exchange.tell(squares.to_tensor());
}

GradientNorm StaggeredRank::hear(RankExchange& exchange) const {
  SquareSum squares;
  for (const at::Tensor& told : exchange.hear()) squares += SquareSum::from_tensor(told);
  return judge_gradients(squares, rules_.max_norm);
}

void StaggeredRank::guess(std::int64_t step) {
  model_.snapshot.take();
  run_optimizer(step);
  guessed_ = step;
  for (std::size_t index = 0; index < gradients_.size(); ++index) {
    gradients_[index] = std::exchange(model_.parameters[index].mutable_grad(), at::Tensor());
  }
}

// False if the guess was wrong: everything is then as it was before the list that has ended.
bool StaggeredRank::settle_guess(RankExchange& exchange) {
  const std::int64_t step = *std::exchange(guessed_, std::nullopt);
  const GradientNorm gradients = hear(exchange);
  const bool is_right = is_as_guessed(gradients);
  if (!is_right) {
    model_.snapshot.restore();
    for (std::size_t index = 0; index < gradients_.size(); ++index) {
      model_.parameters[index].mutable_grad() = gradients_[index];
    }
    update(step, gradients);
    is_guessing_ = false;
  }
  for (at::Tensor& gradient : gradients_) gradient.reset();
  settle(step, gradients, !is_right);
  return is_right;
}

void StaggeredRank::update(std::int64_t step, const GradientNorm& gradients) {
  if (gradients.is_finite()) {
    scale_gradients(model_.parameters, gradients.scale);
    run_optimizer(step);
  }
  for (const at::Tensor& parameter : model_.parameters) parameter.mutable_grad().reset();
}

void StaggeredRank::run_optimizer(std::int64_t step) {
  try {
    if (rules_.learning_rate) {
      set_learning_rate(model_.optimizer, rules_.learning_rate(first_step_ + step));
    }
    model_.optimizer.step();
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {}, training step {}: the optimizer failed: {}", model_.rank,
                            first_step_ + step, cause_of(error)));
  }
}

void StaggeredRank::settle(std::int64_t step, const GradientNorm& gradients,
                           bool was_rolled_back) const {
  if (rules_.settled) rules_.settled(step, gradients, was_rolled_back);
}

}  // namespace penstock
