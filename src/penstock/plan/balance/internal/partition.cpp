#include "penstock/plan/balance/internal/partition.h"

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

// Holds the square of every sum of times that fits into 64 bits.
__extension__ using Square = __int128;

struct Limits {
  Duration time = Duration::max();
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
};

// The fewest parts within `limits`: each takes as much as it can. Too many if a unit is too large.
// Cutting a part in two keeps within the limits, so every larger number of parts works as well.
int fewest_parts(const std::vector<Unit>& units, const Limits& limits) {
  int num_parts = 1;
  Unit part;
  for (const Unit& unit : units) {
    if (unit.time > limits.time || unit.bytes > limits.bytes)
      return std::numeric_limits<int>::max();
    if (part.time + unit.time > limits.time || part.bytes + unit.bytes > limits.bytes) {
      ++num_parts;
      part = {};
    }
    part.time += unit.time;
    part.bytes += unit.bytes;
  }
  return num_parts;
}

// The smallest number up to `most`, which is one, for which `is_enough` holds.
template <typename IsEnough>
std::int64_t smallest_that(std::int64_t most, const IsEnough& is_enough) {
  std::int64_t least = 0;
  while (least < most) {
    const std::int64_t middle = least + (most - least) / 2;
    if (is_enough(middle)) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return least;
}

Unit sum_of(const std::vector<Unit>& units) {
  Unit sum;
  for (const Unit& unit : units) {
    sum.time += unit.time;
    sum.bytes += unit.bytes;
  }
  return sum;
}

// Dynamic programming over prefixes: the cost of the first `end` units in k parts is the least,
// over `begin`, of that of the first `begin` units in k - 1 parts plus the square of the time
// between.
//
// Squares of sums fulfil the quadrangle inequality, so the best `begin` grows with `end`; the
// limits leave each `end` an interval of possible `begin`s whose ends grow too, which keeps that
// true. So the best for the middle `end` halves the search for all others: O(n log n) for each
// part.
class SquareMinimizer {
 public:
  SquareMinimizer(const std::vector<Unit>& units, const Limits& limits)
      : num_units_(static_cast<int>(units.size())),
        sums_(1),
        first_begins_(1, 0),
        costs_(units.size() + 1),
        begins_(units.size() + 1) {
    for (const Unit& unit : units) sums_.push_back(sums_.back() + unit.time.count());
    std::int64_t bytes = 0;
    int begin = 0;
    for (int end = 1; end <= num_units_; ++end) {
      bytes += units[index(end - 1)].bytes;
      while (sums_[index(end)] - sums_[index(begin)] > limits.time.count() ||
             bytes > limits.bytes) {
        bytes -= units[index(begin)].bytes;
        ++begin;
      }
      first_begins_.push_back(begin);
    }
  }

  std::vector<int> cut(int num_parts) {
    std::vector<std::vector<int>> begins;  // [part - 1][end - part]
    int reach = 0;                         // the longest prefix that `part` parts can hold
    Range previous_ends = {.first = 0, .last = 0};
    for (int part = 1; part <= num_parts; ++part) {
      previous_costs_ = costs_;
      const int previous_reach = reach;
      while (reach < num_units_ && first_begins_[index(reach + 1)] <= previous_reach) ++reach;
      // Every later part needs a unit, too.
      const Range ends = {.first = part, .last = std::min(reach, num_units_ - num_parts + part)};
      fill(ends, previous_ends);
      begins.emplace_back(begins_.begin() + ends.first, begins_.begin() + ends.last + 1);
      previous_ends = ends;
    }
    std::vector<int> cuts(index(num_parts + 1), num_units_);
    for (int part = num_parts; part >= 1; --part) {
      cuts[index(part - 1)] = begins[index(part - 1)][index(cuts[index(part)] - part)];
    }
    return cuts;
  }

 private:
  struct Range {
    int first;
    int last;
  };

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }

  // Finds the best begin, known to be in `begins`, for every end in `ends`.
  void fill(Range ends, Range begins) {
    if (ends.first > ends.last) return;
    const int end = ends.first + (ends.last - ends.first) / 2;
    const int first = std::max(begins.first, first_begins_[index(end)]);
    const int last = std::min(begins.last, end - 1);
    int best = first;
    for (int begin = first; begin <= last; ++begin) {
      if (cost(begin, end) < cost(best, end)) best = begin;
    }
    costs_[index(end)] = cost(best, end);
    begins_[index(end)] = best;
    fill({.first = ends.first, .last = end - 1}, {.first = begins.first, .last = best});
    fill({.first = end + 1, .last = ends.last}, {.first = best, .last = begins.last});
  }

  Square cost(int begin, int end) const {
    const Square time = sums_[index(end)] - sums_[index(begin)];
    return previous_costs_[index(begin)] + time * time;
  }

  int num_units_;
  std::vector<std::int64_t> sums_;  // of the times before each unit
  std::vector<int> first_begins_;  // by end: where a part that ends there can begin at the earliest
  std::vector<Square> previous_costs_;  // by end, with one part less
  std::vector<Square> costs_;           // by end
  std::vector<int> begins_;             // by end: where the last part begins
};

}  // namespace

std::int64_t smallest_largest_bytes(const std::vector<Unit>& units, int num_parts) {
  return smallest_that(sum_of(units).bytes, [&](std::int64_t bytes) {
    return fewest_parts(units, {.bytes = bytes}) <= num_parts;
  });
}

std::vector<int> partition(const std::vector<Unit>& units, int num_parts,
                           std::int64_t limit_bytes) {
  const std::int64_t time =
      smallest_that(sum_of(units).time.count(), [&](std::int64_t nanoseconds) {
        return fewest_parts(units, {Duration(nanoseconds), limit_bytes}) <= num_parts;
      });
  return SquareMinimizer(units, {Duration(time), limit_bytes}).cut(num_parts);
}

}  // namespace penstock
