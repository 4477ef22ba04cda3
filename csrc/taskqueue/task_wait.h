// How a thread waits for what another one does: it spins for a moment, in which
// it may help, and then sleeps.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/placement/policy.h"
#include "csrc/taskqueue/sequence.h"

namespace npu {

// How often a wait in the middle of a task looks whether it has been given up.
// Whoever gives it up need not know who waits, so nobody wakes it for that.
inline constexpr uint64_t kTaskLookNs = 20'000'000;

// How long a task spins for a device, or for another stream of its graph,
// before it sleeps: about as long as a wake-up takes.
inline constexpr uint64_t kTaskSpinNs = 7'000;

// Asks `due()` again and again, for at most `spin_ns` or as much of it as the
// process may spin now; at least once. Returns whether it became due.
template <typename Due>
bool spin_until(uint64_t spin_ns, Due due) {
  const SpinGrant spin(spin_ns ? ns_to_ticks(spin_ns) : 0);
  const uint64_t start = ticks();
  do {
    if (due()) return true;
    pause();
  } while (ticks_between(start, ticks()) < spin.ticks());
  return false;
}

// Waits until `due()`, or as long as not `given_up()`. `sleep()` returns when
// it may be due, and now and then. True: it is due.
template <typename Due, typename GivenUp, typename Sleep>
bool spin_then_sleep(uint64_t spin_ns, Due due, GivenUp given_up, Sleep sleep) {
  if (spin_until(spin_ns, due)) return true;
  while (!due()) {
    if (given_up()) return false;
    sleep();
  }
  return true;
}

// Waits in the middle of a task until the sequence has reached the number.
template <typename System, typename GivenUp>
bool wait_in_task(BasicSequence<System>& sequence, uint64_t number,
                  uint64_t spin_ns, GivenUp given_up) {
  if (!sequence.reached(number)) sequence.want(number);
  return spin_then_sleep(
      spin_ns, [&] { return sequence.reached(number); }, given_up,
      [&] { sequence.sleep(number, kTaskLookNs); });
}

}  // namespace npu
