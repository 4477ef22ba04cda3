// Keeping launchers that are at work off each other's CPU.
//
// A launcher is not woken on its caller's CPU (placement/wake_placement.h), so
// two of them are on the same other one where there are but two, and the kernel
// may leave them there for tens of milliseconds after the caller sleeps.
#pragma once

#include <sched.h>

#include <cstdint>

namespace npu {

// A launcher's place among the others of the process. Its thread alone calls
// its functions.
class Seat {
 public:
  Seat();
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // To be called now and then while at work; `now` in ns, on now_ns()'s clock.
  // Where a launcher in an earlier slot works on this thread's CPU, goes to a
  // CPU where none does, if there is one. The thread's allowed CPUs are the
  // same afterwards.
  void look(uint64_t now);

  // What look() decides, of any machine: notes that this launcher works on
  // `cpu`; whether one in an earlier slot does too.
  bool crowded(uint64_t now, int cpu);
  // Takes a CPU of those where no launcher works; -1: there is none.
  int take_free(uint64_t now, const cpu_set_t& allowed);

 private:
  int slot_ = -1;  // none: more launchers than slots
  uint64_t next_ = 0;
};

}  // namespace npu
