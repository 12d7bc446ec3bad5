#include "train_output.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "penstock/base/text.h"
#include "penstock/plan/simulator/profile.h"

namespace penstock {
namespace {

// "983", "18.2k", "1.25M"
std::string short_number(double number) {
  constexpr double kThousand = 1e3;
  constexpr double kMillion = 1e6;
  constexpr double kRoundedDown = 0.9995;  // of what is less, three digits stay three
  if (number < kRoundedDown * kThousand) return fmt::format("{:.0f}", number);
  if (number < kRoundedDown * kMillion) return fmt::format("{:.3g}k", number / kThousand);
  return fmt::format("{:.3g}M", number / kMillion);
}

std::string mebibytes(std::int64_t bytes) {
  constexpr double kMebi = 1024.0 * 1024.0;
  return fmt::format("{:.2f}", static_cast<double>(bytes) / kMebi);
}

// As many of the fields as fit, from the first on, which always does.
std::string joined(const std::vector<std::string>& fields, std::size_t columns) {
  std::string text = fields.front();
  for (std::size_t index = 1; index < fields.size(); ++index) {
    if (text.size() + 2 + fields[index].size() > columns) break;
    text += "  " + fields[index];
  }
  return text;
}

std::string stages_text(const RankMemory& memory) {
  return fmt::format("{}", fmt::join(memory.stages, ","));
}

// One row per rank; fits 80 columns unless ranks have many stages.
std::string ranks_table(const RunFigures& figures) {
  std::size_t widest = std::string_view("stages").size();
  bool is_sharded = false;
  for (const RankMemory& memory : figures.ranks) {
    widest = std::max(widest, stages_text(memory).size());
    is_sharded = is_sharded || memory.gathered_bytes > 0;
  }
  std::string text =
      fmt::format("{:<4} {:<{}} {:>7}  {}\n", "", "", widest, "", "peak memory, MiB");
  text += fmt::format("{:<4} {:<{}} {:>7} {:>8} {:>10} {:>9} {:>9} {:>11}{}\n", "rank", "stages",
                      widest, "bubble", "all", "parameters", "gradients", "optimizer",
                      "activations", is_sharded ? " gathered" : "");
  for (std::size_t rank = 0; rank < figures.ranks.size(); ++rank) {
    const RankMemory& memory = figures.ranks[rank];
    const RankUsage& usage = figures.measured.ranks[rank];
    const double busy = static_cast<double>(usage.busy.count()) /
                        static_cast<double>(figures.measured.makespan.count());
    text +=
        fmt::format("{:<4} {:<{}} {:>5.1f} % {:>8} {:>10} {:>9} {:>9} {:>11}{}\n", rank,
                    stages_text(memory), widest, 100 * (1 - busy), mebibytes(memory.peak_bytes()),
                    mebibytes(memory.parameter_bytes), mebibytes(memory.gradient_bytes),
                    mebibytes(memory.optimizer_bytes), mebibytes(memory.activation_bytes),
                    is_sharded ? fmt::format(" {:>8}", mebibytes(memory.gathered_bytes)) : "");
  }
  return text;
}

}  // namespace

bool Talk::is_terminal() const {
  return isatty(fileno(stream_)) != 0;
}

int Talk::columns() const {
  constexpr int kUsual = 80;
  winsize size{};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): that is what it is
  if (ioctl(fileno(stream_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

void Talk::say_text(const std::string& text) const {
  const bool has_arrived =
      std::fwrite(text.data(), 1, text.size(), stream_) == text.size() && std::fflush(stream_) == 0;
  if (!has_arrived && error_ == 0) error_ = errno;
}

std::string Talk::complaint() const {
  // Who stops reading has heard enough, as in `penstock train | head`.
  if (error_ == 0 || error_ == EPIPE) return "";
  return fmt::format("cannot write {}: {}",
                     stream_ == stdout ? "standard output" : "standard error",
                     std::strerror(error_));
}

TrainProgress::TrainProgress(Shape shape, const Talk& talk)
    : shape_(std::move(shape)), talk_(talk), begin_(Clock::now()), last_line_(shape_.first_step) {}

double TrainProgress::units_per_second() const {
  const double seconds = num_timed_ == 0
                             ? first_seconds_
                             : std::chrono::duration<double>(Clock::now() - begin_).count();
  const auto num_steps = static_cast<double>(std::max<std::int64_t>(1, num_timed_));
  return seconds > 0 ? num_steps * shape_.units_per_step / seconds : 0;
}

std::vector<std::string> TrainProgress::fields(const StepFigures& figures) const {
  const std::string num_steps = std::to_string(shape_.num_steps);
  const bool is_even = talk_.is_terminal();
  const auto padded = [is_even](const std::string& text, std::size_t width) {
    return fmt::format("{:>{}}", text, is_even ? width : 0);
  };
  std::vector<std::string> texts = {
      fmt::format("step {}/{}", padded(std::to_string(figures.step), num_steps.size()), num_steps),
      "loss " + padded(loss_text(figures.loss), std::string_view("1.2345").size()),
      fmt::format("{} {}/s",
                  padded(short_number(units_per_second()), std::string_view("12.3k").size()),
                  shape_.unit)};
  const std::int64_t left = shape_.num_steps - figures.step;
  std::string time_left;
  if (left > 0 && num_timed_ > 0) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    time_left =
        duration_text(seconds / static_cast<double>(num_timed_) * static_cast<double>(left));
  }
  if (is_even && time_left.empty()) time_left = left > 0 ? "-:--" : duration_text(0);
  if (!time_left.empty()) {
    texts.push_back(padded(time_left, std::string_view("12:34").size()) + " left");
  }
  texts.push_back(fmt::format("bubble {} %", padded(fmt::format("{:.1f}", 100 * figures.bubble),
                                                    std::string_view("12.3").size())));
  return texts;
}

std::string TrainProgress::bar(const StepFigures& figures) const {
  constexpr int kNarrowest = 8;
  constexpr int kWidest = 40;
  constexpr int kFrame = 4;  // its ends, and a blank on its right and on that of the text
  const int columns = talk_.columns();
  std::string text =
      joined(fields(figures), static_cast<std::size_t>(std::max(1, columns - kFrame - kNarrowest)));
  const int room = columns - kFrame - static_cast<int>(text.size());
  if (room < kNarrowest) return text;
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
  if (is_first) {
    begin_ = now;
    first_seconds_ = figures.seconds;
  }
  num_timed_ = figures.step - shape_.first_step - 1;
  if (talk_.is_terminal()) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    if (!is_first && !is_last && now - shown_ < kPause) return;
    shown_ = now;
    has_bar_ = true;
    talk_.say("\r{}\033[K", bar(figures));
  } else {
    constexpr int kLines = 10;
    const std::int64_t pause = (shape_.num_steps + kLines - 1) / kLines;
    if (!is_first && !is_last && figures.step - last_line_ < pause) return;
    last_line_ = is_first ? shape_.first_step : figures.step;
    talk_.say("{}\n", fmt::join(fields(figures), "  "));
  }
}

void TrainProgress::end() {
  if (has_bar_) talk_.say("\r\033[K");
  has_bar_ = false;
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
  return text + "\n" + ranks_table(figures);
}

std::string loss_text(double loss) {
  return fmt::format("{:.4f}", std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss);
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
