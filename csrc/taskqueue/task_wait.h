// How the thread that executes a stream's tasks waits in the middle of one, for
// what another thread does: for another stream, a flag, a device.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/placement/policy.h"
#include "csrc/taskqueue/sequence.h"

namespace npu {

// How often such a wait looks whether it has been given up. Whoever gives it up
// need not know who waits, so nobody wakes it for that.
inline constexpr uint64_t kTaskLookNs = 20'000'000;

// How long a task spins for a device, or for another stream of its graph,
// before it sleeps: about as long as a wake-up takes.
inline constexpr uint64_t kTaskSpinNs = 7'000;

// Waits until `due()`, or as long as not `given_up()`. `sleep()` returns when
// it may be due, after kTaskLookNs at the latest. True: it is due.
template <typename Due, typename GivenUp, typename Sleep>
bool wait_in_task(uint64_t spin_ns, Due due, GivenUp given_up, Sleep sleep) {
  {
    const SpinGrant spin(ns_to_ticks(spin_ns));
    const uint64_t start = ticks();
    do {
      if (due()) return true;
      pause();
    } while (ticks_between(start, ticks()) < spin.ticks());
  }
  while (!due()) {
    if (given_up()) return false;
    sleep();
  }
  return true;
}

// Waits until the sequence has reached the number.
template <typename System, typename GivenUp>
bool wait_in_task(BasicSequence<System>& sequence, uint64_t number,
                  uint64_t spin_ns, GivenUp given_up) {
  if (!sequence.reached(number)) sequence.want(number);
  return wait_in_task(
      spin_ns, [&] { return sequence.reached(number); }, given_up,
      [&] { sequence.sleep(number, kTaskLookNs); });
}

}  // namespace npu
