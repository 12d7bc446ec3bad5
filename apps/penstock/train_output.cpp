#include "train_output.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/simulator/profile.h"

namespace penstock {
namespace {

// "983", "18.2k", "1.25M"
std::string short_number(double number) {
  constexpr double kThousand = 1e3;
  constexpr double kMillion = 1e6;
  if (number < kThousand) return fmt::format("{:.0f}", number);
  if (number < kMillion) return fmt::format("{:.3g}k", number / kThousand);
  return fmt::format("{:.3g}M", number / kMillion);
}

std::string mebibytes(std::int64_t bytes) {
  constexpr double kMebi = 1024.0 * 1024.0;
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kMebi);
}

int terminal_columns() {
  constexpr int kUsual = 80;
  winsize size{};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): that is what it is
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace

TrainProgress::TrainProgress(Shape shape)
    : shape_(std::move(shape)),
      is_terminal_(isatty(STDOUT_FILENO) != 0),
      begin_(Clock::now()),
      last_line_(shape_.first_step) {}

double TrainProgress::units_per_second() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  return seconds > 0 ? static_cast<double>(num_timed_) * shape_.units_per_step / seconds : 0;
}

std::string TrainProgress::line(const StepFigures& figures) const {
  const std::int64_t left = shape_.num_steps - figures.step;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double speed =
      num_timed_ > 0 ? units_per_second() : shape_.units_per_step / figures.seconds;
  std::string text = fmt::format("step {}/{}  loss {:.4f}  {} {}/s  bubble {:.1f} %", figures.step,
                                 shape_.num_steps, figures.loss, short_number(speed), shape_.unit,
                                 100 * figures.bubble);
  if (left > 0 && num_timed_ > 0) {
    text += fmt::format("  {} left", duration_text(seconds / static_cast<double>(num_timed_) *
                                                   static_cast<double>(left)));
  }
  return text;
}

std::string TrainProgress::bar(const StepFigures& figures) const {
  constexpr int kNarrowest = 8;
  constexpr int kWidest = 40;
  const std::string text = line(figures);
  const int room = terminal_columns() - static_cast<int>(text.size()) - 4;
  if (room < kNarrowest) return text.substr(0, static_cast<std::size_t>(terminal_columns() - 1));
  const int width = std::min(room, kWidest);
  const auto done =
      static_cast<int>(static_cast<double>(width) * static_cast<double>(figures.step) /
                       static_cast<double>(shape_.num_steps));
  return fmt::format("[{:<{}}] {}", std::string(static_cast<std::size_t>(done), '#'), width, text);
}

void TrainProgress::show(const StepFigures& figures) {
  const Clock::time_point now = Clock::now();
  const bool is_first = figures.step == shape_.first_step + 1;
  const bool is_last = figures.step == shape_.num_steps;
  // The first step makes room in memory and is slow, so the speed counts from its end on.
  if (is_first) begin_ = now;
  num_timed_ = figures.step - shape_.first_step - 1;
  if (is_terminal_) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    if (!is_first && !is_last && now - shown_ < kPause) return;
    shown_ = now;
    has_bar_ = true;
    fmt::print("\r{}\033[K", bar(figures));
  } else {
    constexpr int kLines = 10;
    const std::int64_t pause = (shape_.num_steps + kLines - 1) / kLines;
    if (!is_first && !is_last && figures.step - last_line_ < pause) return;
    last_line_ = is_first ? shape_.first_step : figures.step;
    fmt::print("{}\n", line(figures));
  }
  std::fflush(stdout);
}

void TrainProgress::end() {
  if (has_bar_) fmt::print("\r\033[K");
  has_bar_ = false;
  std::fflush(stdout);
}

TrainLog::TrainLog(const std::string& path, bool appends, std::string unit)
    : path_(path), unit_(std::move(unit)), file_(std::fopen(path.c_str(), appends ? "ab" : "wb")) {
  if (!file_) {
    throw Error(fmt::format("cannot write {}: {}", quote(path, 200), std::strerror(errno)));
  }
}

void TrainLog::write(const StepFigures& figures, double units_per_step) {
  nlohmann::ordered_json json;
  json["step"] = figures.step;
  json["loss"] = figures.loss;
  json[unit_ + "_per_s"] = units_per_step / figures.seconds;
  json["lr"] = figures.learning_rate;
  json["norm"] = figures.gradient_norm;
  json["bubble"] = figures.bubble;
  const std::string line = json.dump() + "\n";
  const bool is_written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                          std::fflush(file_.get()) == 0;
  if (!is_written) {
    throw Error(fmt::format("cannot write {}: {}", quote(path_, 200), std::strerror(errno)));
  }
}

std::string figures_table(const RunFigures& figures, double units_per_second,
                          const std::string& unit) {
  const auto row = [](std::string_view label, const std::string& value) {
    return fmt::format("{:<22} {}\n", label, value);
  };
  std::string text =
      row("throughput", fmt::format("{:.0f} {}/s", units_per_second, unit)) +
      row("step in the pipeline", fmt::format("{:.2f} ms", to_milliseconds(figures.step))) +
      row("bound of the schedule",
          fmt::format("{:.2f} ms, bubble {:.1f} % ({}, {})",
                      to_milliseconds(figures.predicted.makespan),
                      100 * figures.predicted.makespan_bubble, figures.schedule,
                      counted(figures.program.num_ranks(), "rank", "ranks"))) +
      row("efficiency", fmt::format("{:.1f} % of that bound", 100 * figures.efficiency()));
  const bool is_sharded =
      std::any_of(figures.ranks.begin(), figures.ranks.end(),
                  [](const RankMemory& memory) { return memory.gathered_bytes > 0; });
  text += fmt::format("\n{:<6} {:<10} {:>8}   {:>24} {:>11} {:>11} {:>11} {:>11}{}\n", "rank",
                      "stages", "bubble", "peak memory, MiB: all", "parameters", "gradients",
                      "optimizer", "activations", is_sharded ? "    gathered" : "");
  for (std::size_t rank = 0; rank < figures.ranks.size(); ++rank) {
    const RankMemory& memory = figures.ranks[rank];
    const RankUsage& usage = figures.measured.ranks[rank];
    const double busy = static_cast<double>(usage.busy.count()) /
                        static_cast<double>(figures.measured.makespan.count());
    text += fmt::format("{:<6} {:<10} {:>6.1f} % {:>25} {:>11} {:>11} {:>11} {:>11}{}\n", rank,
                        fmt::format("{}", fmt::join(memory.stages, ",")), 100 * (1 - busy),
                        mebibytes(memory.peak_bytes()), mebibytes(memory.parameter_bytes),
                        mebibytes(memory.gradient_bytes), mebibytes(memory.optimizer_bytes),
                        mebibytes(memory.activation_bytes),
                        is_sharded ? fmt::format(" {:>11}", mebibytes(memory.gathered_bytes)) : "");
  }
  return text;
}

std::string quoted_text(const std::string& text) {
  std::string result = "| ";
  for (const char letter : text) {
    result += letter;
    if (letter == '\n') result += "| ";
  }
  return result + "\n";
}

std::string duration_text(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < kHour) return fmt::format("{}:{:02}", whole / kMinute, whole % kMinute);
  return fmt::format("{}:{:02}:{:02}", whole / kHour, whole % kHour / kMinute, whole % kMinute);
}

}  // namespace penstock
