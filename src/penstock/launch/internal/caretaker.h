#pragma once

#include <string>

#include <sys/types.h>

namespace penstock {

// A process that stays for a moment when the launcher is killed, and clears up then: it kills what
// ranks have started and left behind in their process groups, and removes the launcher's folder.
// Ranks themselves die with the launcher.
class Caretaker {
 public:
  // Throws Error if there can be no such process.
  explicit Caretaker(const std::string& folder);
  Caretaker(const Caretaker&) = delete;
  Caretaker& operator=(const Caretaker&) = delete;
  Caretaker(Caretaker&&) = delete;
  Caretaker& operator=(Caretaker&&) = delete;
  // There is nothing left to clear up.
  ~Caretaker();

  // The process group `group` is to be killed, or not any more.
  void watch(pid_t group) const;
  void forget(pid_t group) const;

  pid_t process_id() const { return process_; }

 private:
  void tell(pid_t number) const;

  int pipe_ = -1;  // closes when the launcher ends, in whatever way
  pid_t process_ = -1;
};

}  // namespace penstock
