#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

// Puts a prefix in front of every line of a stream that comes in pieces. Only whole lines come out,
// so that several streams can share a terminal.
class LinePrefixer {
 public:
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // longer ones are broken

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` completes.
  std::string take(std::string_view bytes);

  // What is left at the end of the stream, made a line.
  std::string finish();

 private:
  std::string prefix_;
  std::string rest_;  // the beginning of a line
};

}  // namespace penstock
