#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

// Standard output and standard error of the launcher, which copies lines to them and never waits
// for who reads them: what is not taken yet is kept. Both may be the same pipe or terminal.
class Output {
 public:
  Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  Output(Output&&) = delete;
  Output& operator=(Output&&) = delete;
  ~Output();

  // `target` is STDOUT_FILENO or STDERR_FILENO. Who adds much looks for room first.
  bool has_room(int target) const { return stream(target).pending.size() < kMostPending; }
  void add(int target, std::string_view text);

  // One line of the launcher itself, on standard error.
  void say(const std::string& text);

  // Writes what can be written at once.
  void flush();

  // What flush() could not write waits for this descriptor to become writable; -1: nothing does.
  int descriptor(int target) const;
  bool is_empty() const;
  // Nobody reads one of them any more, and what is added for it is lost.
  bool is_broken() const { return streams_[0].is_broken || streams_[1].is_broken; }

 private:
  static constexpr std::size_t kMostPending = std::size_t{1} << 20;

  struct Stream {
    int descriptor = -1;
    bool is_own = false;  // opened here, so that it never keeps the launcher waiting
    bool is_broken = false;
    std::string pending = {};
  };

  static Stream open_stream(int target);
  static void flush(Stream& stream);
  const Stream& stream(int target) const;
  Stream& stream(int target);

  std::array<Stream, 2> streams_;
  bool is_one_ = false;  // both targets are the first stream, so that lines stay whole
};

}  // namespace penstock
