#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "penstock/run/train/trainer.h"

namespace penstock {

// One line of JSON per step, for programs. The losses read back as the same numbers; what is no
// number is null.
class TrainLog {
 public:
  // Replaces a file that is there. A run that goes on after `resumed_step` goes on with it instead,
  // and first cuts off what an interrupted run has logged of later steps, which come again. "-" is
  // standard output. Throws Error if it cannot be written.
  TrainLog(const std::string& path, std::optional<std::int64_t> resumed_step, std::string unit);

  void write(const StepFigures& figures, double units_per_step);

 private:
  struct Closer {
    void operator()(std::FILE* file) const;
  };
  std::string path_;
  std::string unit_;
  std::unique_ptr<std::FILE, Closer> file_;
};

// Throws Error if a log could not be written to `path`; what is there stays.
void require_log_place(const std::string& path);

}  // namespace penstock
