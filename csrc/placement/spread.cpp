#include "csrc/placement/spread.h"

#include <sched.h>

#include "csrc/placement/this_machine.h"
#include "csrc/placement/tuning.h"

namespace npu {
namespace {

// Moves the calling thread by allowing it one CPU only for a moment. The
// thread's owner may give it other CPUs between two of these calls; those stay.
void move_to(int cpu, const cpu_set_t& allowed) {
  cpu_set_t one, seen;
  CPU_ZERO(&one);
  CPU_SET(size_t(cpu), &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0 &&
      sched_getaffinity(0, sizeof seen, &seen) == 0 && CPU_EQUAL(&one, &seen))
    sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

Seat::Seat() : seat_(policy().take_seat()) {}
Seat::~Seat() { policy().leave_seat(seat_); }

int Seat::look(uint64_t now, int producer) {
  if (seat_ < 0 || now < next_) return -1;
  return look(now, Whereabouts{sched_getcpu(), producer});
}

int Seat::look(uint64_t now, Whereabouts at) {
  next_ = now + tuning::kBetweenLooksNs;
  cpu_set_t allowed;
  if (!policy().crowded(seat_, now, at.cpu) ||
      sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return -1;
  const int cpu = policy().place(seat_, now, at, allowed, topology());
  if (cpu >= 0) move_to(cpu, allowed);
  return cpu;
}

}  // namespace npu
