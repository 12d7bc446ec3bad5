#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "penstock/run/train/run_figures.h"
#include "penstock/run/train/trainer.h"

namespace penstock {

// Where a run talks to people; a stream that breaks does not end it.
class Talk {
 public:
  explicit Talk(std::FILE* stream) : stream_(stream) {}

  bool is_terminal() const;
  int columns() const;  // of the terminal

  template <typename... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  void say_text(const std::string& text) const;

  // Why not everything has arrived; empty if it has, or if nobody reads on.
  std::string complaint() const;

 private:
  std::FILE* stream_;
  mutable int error_ = 0;  // why something has not arrived
};

// Tells how a training run goes on: a bar on a terminal, a line now and then elsewhere.
class TrainProgress {
 public:
  struct Shape {
    std::int64_t num_steps = 0;   // of the whole run
    std::int64_t first_step = 0;  // that this process takes, from 0
    double units_per_step = 0;
    std::string unit = "tokens";
  };
  // `talk` must outlive it.
  TrainProgress(Shape shape, const Talk& talk);

  void show(const StepFigures& figures);
  // Takes the bar away.
  void end();

  double units_per_second() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string bar(const StepFigures& figures) const;
  // What a line consists of, the most important first. On a terminal each field keeps its width
  // from step to step.
  std::vector<std::string> fields(const StepFigures& figures) const;

  Shape shape_;
  const Talk& talk_;
  Clock::time_point begin_;
  Clock::time_point shown_;
  double first_seconds_ = 0;    // of the first step
  std::int64_t num_timed_ = 0;  // steps since begin_
  std::int64_t last_line_ = 0;  // the step of it
  bool has_bar_ = false;
};

// The table at the end of a run.
std::string figures_table(const RunFigures& figures, double units_per_second,
                          const std::string& unit);

// With four digits after the point; what is no number has no sign either.
std::string loss_text(double loss);

// Text that a model has made, with a mark in front of every line.
std::string quoted_text(const std::string& text);

// "2:05", "1:02:05".
std::string duration_text(double seconds);

}  // namespace penstock
