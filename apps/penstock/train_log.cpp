#include "train_log.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

constexpr std::string_view kStandardOutput = "-";

[[noreturn]] void fail_to_log(const std::string& path, const std::string& why) {
  throw Error(fmt::format("cannot write {}: {}",
                          path == kStandardOutput ? "standard output" : quote(path, 200), why));
}

std::FILE* open_log(const std::string& path, const char* mode) {
  if (path == kStandardOutput) return stdout;
  std::FILE* const file = std::fopen(path.c_str(), mode);
  if (file == nullptr) fail_to_log(path, std::strerror(errno));
  return file;
}

bool is_after(const std::string& line, std::int64_t step) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("step") && json["step"].is_number() &&
         json["step"] > step;
}

// The bytes at the beginning of a log that are about steps up to `step`, in whole lines.
std::uintmax_t bytes_up_to(const std::string& path, std::int64_t step) {
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (is_after(line, step)) break;
    bytes += line.size() + 1;
  }
  return bytes;
}

// In one move, so that a kill leaves the log as it was or as it should be.
void cut_log(const std::string& path, std::int64_t step) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;  // a stream has nothing to cut
  std::filesystem::resize_file(path, bytes_up_to(path, step), error);
  if (error) fail_to_log(path, error.message());
}

}  // namespace

void TrainLog::Closer::operator()(std::FILE* file) const {
  if (file != stdout) std::fclose(file);
}

TrainLog::TrainLog(const std::string& path, std::optional<std::int64_t> resumed_step,
                   std::string unit)
    : path_(path), unit_(std::move(unit)) {
  if (resumed_step) cut_log(path, *resumed_step);
  file_.reset(open_log(path, resumed_step ? "ab" : "wb"));
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
  // Who stops reading has seen enough.
  if (!is_written && errno != EPIPE) fail_to_log(path_, std::strerror(errno));
}

void require_log_place(const std::string& path) {
  if (path == kStandardOutput) return;
  std::fclose(open_log(path, "ab"));
}

}  // namespace penstock
