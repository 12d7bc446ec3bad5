#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "penstock/run/train/run_figures.h"
#include "penstock/run/train/trainer.h"

namespace penstock {

// Tells how a training run goes on: a bar on a terminal, a line now and then elsewhere.
class TrainProgress {
 public:
  struct Shape {
    std::int64_t num_steps = 0;   // of the whole run
    std::int64_t first_step = 0;  // that this process takes, from 0
    double units_per_step = 0;
    std::string unit = "tokens";
  };
  explicit TrainProgress(Shape shape);

  void show(const StepFigures& figures);
  // Takes the bar away.
  void end();

  double units_per_second() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string bar(const StepFigures& figures) const;
  std::string line(const StepFigures& figures) const;

  Shape shape_;
  bool is_terminal_;
  Clock::time_point begin_;
  Clock::time_point shown_;
  std::int64_t num_timed_ = 0;  // steps since begin_
  std::int64_t last_line_ = 0;  // the step of it
  bool has_bar_ = false;
};

// One line of JSON per step, for programs. The losses read back as the same numbers.
class TrainLog {
 public:
  // Goes on with a file that is there if `appends`, and replaces it otherwise. Throws Error if it
  // cannot be written.
  TrainLog(const std::string& path, bool appends, std::string unit);

  void write(const StepFigures& figures, double units_per_step);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::string unit_;
  std::unique_ptr<std::FILE, Closer> file_;
};

// The table at the end of a run.
std::string figures_table(const RunFigures& figures, double units_per_second,
                          const std::string& unit);

// Text that a model has made, with a mark in front of every line.
std::string quoted_text(const std::string& text);

// "2:05", "1:02:05".
std::string duration_text(double seconds);

}  // namespace penstock
