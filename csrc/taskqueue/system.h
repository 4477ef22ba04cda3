// What waiting asks of the machine: a template parameter, so that a model
// checker can stand in for it and try every schedule of the real code.
#pragma once

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/event_fd.h"
#include "csrc/base/futex.h"
#include "csrc/base/thread_number.h"
#include "csrc/placement/policy.h"
#include "csrc/placement/tuning.h"
#include "csrc/placement/wake_placement.h"

namespace npu {

struct System {
  template <typename T>
  using Atomic = std::atomic<T>;
  // Data that several threads use, one after another.
  template <typename T>
  using Plain = T;
  // The base of what is made by new, and deleted by whoever uses it last.
  struct Allocated {};
  using EventFd = npu::EventFd;
  using WakePlacement = npu::WakePlacement;

  static uint64_t this_thread() { return thread_number(); }
  // Lets the thread that is waited for run. (With sched_yield() a thread of
  // real-time priority would keep its CPU.)
  static void let_others_run() { usleep(20); }
  // Whether a thread may call heavy_fence() now, in order to sleep until it is
  // woken. One that may not takes a nap and looks again.
  static bool may_fence() { return policy().may_fence(now_ns()); }
  static void nap() {
    constexpr timespec kNap{0, long(tuning::kNapNs)};
    nanosleep(&kNap, nullptr);
  }
  static void light_fence() { npu::light_fence(); }
  static void heavy_fence() { npu::heavy_fence(); }
  static Woken futex_wait(const void* word, uint32_t expected,
                          uint64_t timeout_ns) {
    return npu::futex_wait(word, expected, timeout_ns);
  }
  static void futex_wake_all(const void* word) { npu::futex_wake_all(word); }
};

}  // namespace npu
