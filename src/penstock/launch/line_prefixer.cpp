#include "penstock/launch/line_prefixer.h"

namespace penstock {

std::string LinePrefixer::take(std::string_view bytes) {
  std::string lines;
  const auto add_line = [&] {
    lines += prefix_;
    lines += rest_;
    lines += '\n';
    rest_.clear();
  };
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const std::size_t room = kLongestLine - rest_.size();
    if (piece.size() > room) {
      rest_ += piece.substr(0, room);
      bytes.remove_prefix(room);
      add_line();
      continue;
    }
    rest_ += piece;
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    add_line();
  }
  return lines;
}

std::string LinePrefixer::finish() {
  return rest_.empty() ? std::string() : take("\n");
}

}  // namespace penstock
