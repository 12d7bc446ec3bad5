#pragma once

#include <string>
#include <vector>

namespace penstock {

// Tells who calls operator new, which it replaces in the program it is linked into. The program
// must export its symbols, so that callers have names.
class AllocationLog {
 public:
  // Logs the allocations of all threads from here to stop().
  static void start();
  static void stop();

  static int num_allocations();

  // Of those, the functions of this program that made them: one entry per allocation. What
  // libtorch allocates on our behalf is not among them.
  static std::vector<std::string> own();
};

}  // namespace penstock
