#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock {

// What the sharded stages of a rank take, in bytes, padding included. Counted, not measured.
struct ParameterBytes {
  std::int64_t slices = 0;           // parameters of this replica
  std::int64_t slice_gradients = 0;  // their gradients, now
  std::int64_t gathered = 0;         // whole parameters, now
  std::int64_t peak_gathered = 0;    // at most, in the last step
  std::int64_t whole_gradients = 0;  // from the first backward of a stage to its REDUCE_GRAD
  std::int64_t peak_whole_gradients = 0;
};

// Keeps the counts of a rank, whose stages add to them; but for slice_gradients, which belong to
// whoever uses them.
class ByteMeter {
 public:
  const ParameterBytes& now() const { return bytes_; }

  void add_slices(std::int64_t bytes) { bytes_.slices += bytes; }
  void add_gathered(std::int64_t bytes) {
    bytes_.gathered += bytes;
    bytes_.peak_gathered = std::max(bytes_.peak_gathered, bytes_.gathered);
  }
  void add_whole_gradients(std::int64_t bytes) {
    bytes_.whole_gradients += bytes;
    bytes_.peak_whole_gradients = std::max(bytes_.peak_whole_gradients, bytes_.whole_gradients);
  }
  void begin_step() {
    bytes_.peak_gathered = bytes_.gathered;
    bytes_.peak_whole_gradients = bytes_.whole_gradients;
  }

 private:
  ParameterBytes bytes_;
};

}  // namespace penstock
