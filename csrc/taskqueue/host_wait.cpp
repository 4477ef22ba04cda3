#include "csrc/taskqueue/host_wait.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/env.h"
#include "csrc/base/hooks.h"
#include "csrc/observe/observer.h"
#include "csrc/placement/idle_policy.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/policy.h"
#include "csrc/placement/shared_loop.h"
#include "csrc/placement/tuning.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task_wait.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

constexpr uint64_t kInterruptNs = 50'000'000;

// Relaxed: a wait that begins while watching begins or ends may go either way.
std::atomic<int> watchers_{0};

thread_local WaitPatience patience_;

// How long a wait of this kind may take; 0: for ever.
uint64_t limit_ns(WaitReason reason) {
  static const uint64_t device =
      uint64_t(env_int("ACL_DEVICE_SYNC_TIMEOUT", -1, -1, 1 << 30));
  static const uint64_t stream =
      uint64_t(env_int("ACL_STREAM_TIMEOUT", -1, -1, 1 << 30));
  if (reason == WaitReason::kDeviceSync && int64_t(device) > 0)
    return device * 1'000'000'000;
  if (reason == WaitReason::kStreamSync && int64_t(stream) > 0)
    return stream * 1'000'000;
  return 0;
}

// When a wait that begins now is to be given up; 0: never.
uint64_t deadline_of(WaitReason reason) {
  const uint64_t limit = limit_ns(reason);
  return limit ? now_ns() + limit : 0;
}

std::runtime_error timed_out(const Stream& stream, uint64_t number) {
  return std::runtime_error(
      stream.name() + " has not come to task " + std::to_string(number) +
      " within the time that ACL_DEVICE_SYNC_TIMEOUT (seconds) or "
      "ACL_STREAM_TIMEOUT (milliseconds) gives synchronize(); its work goes "
      "on");
}

// Holds the hooks' token, and gives it back however the wait ends.
class Released {
 public:
  Released() : token_(hooks.release ? hooks.release() : nullptr) {}
  ~Released() { reacquire(); }
  void reacquire() {
    if (token_) hooks.reacquire(token_);
    token_ = nullptr;
  }

 private:
  void* token_;
};

// Runs pieces of kernels as they come, for not much longer than kInterruptNs. A
// piece counts as spinning, where that is limited.
template <typename Due>
bool spin_and_help(uint64_t spin_ns, Due due) {
  WaitingHelper helper;
  const uint64_t end = now_ns() + kInterruptNs;
  bool helped;
  do {
    helped = false;
    if (spin_until(spin_ns,
                   [&] { return due() || (helped = helper.help()); }) &&
        !helped)
      return true;
  } while (helped && now_ns() < end);
  return false;
}

// The part of a wait that gives up the GIL. Returns now and then.
void spin_or_sleep(Stream& stream, uint64_t number) {
  const auto due = [&] { return stream.retired().reached(number); };
  const Released released;
  if (!SleepAtOnce::holds()) {
    const uint64_t patient_ns = patience_.spin_ns();
    if (helpers_are_wanted(now_ns())) {
      const uint64_t helping_ns = openmp_team_was_used()
                                      ? tuning::kHelperSpinNs
                                      : tuning::kWaitingHelperSpinNs;
      if (spin_and_help(std::max(patient_ns, helping_ns), due)) return;
    } else if (patient_ns && spin_until(patient_ns, due)) {
      return;
    }
  }
  dismiss_openmp_team();
  stream.retired().sleep(number, kInterruptNs);
}

using GoesOn = const std::function<bool()>*;  // null: always

// Throws after `deadline`, where that is not 0. False: given up.
bool wait(Stream& stream, uint64_t number, uint64_t deadline, GoesOn goes_on) {
  const auto due = [&] { return stream.retired().reached(number); };
  if (NoHostWaits::holds() && !due())
    throw LauncherWait(
        "npu: work that a stream runs cannot wait for " + stream.name() +
        ", as reading a tensor's value does: submit what needs the value after "
        "what computes it, or wait before submitting");
  stream.retired().want(number);
  const bool spins = !SleepAtOnce::holds() && !helpers_are_wanted(now_ns());
  if (spin_until(spins ? tuning::kHostWaitSpinNs : 0, due)) return true;
  const uint64_t start = now_ns();
  for (;;) {
    spin_or_sleep(stream, number);
    if (due()) break;
    if (hooks.check_interrupt) hooks.check_interrupt();
    if (deadline && now_ns() > deadline) throw timed_out(stream, number);
    if (goes_on && !(*goes_on)()) return false;
  }
  patience_.waited(now_ns() - start);
  return true;
}

// The counters of one kind of wait.
struct Counts {
  Counter &count, &ns, &open, &from;
};

// A wait as the statistics see it: it is listed while it lasts, and counted for
// its line when it has ended.
class MeasuredWait {
 public:
  MeasuredWait(const Counts& c, WaitReason reason, const Stream& stream,
               uint64_t number)
      : reason_(uint64_t(reason)),
        site_(call_stack_id()),
        start_(now_ns()),
        counted_(c.count, c.ns, c.open, c.from, start_),
        listed_(reason_, site_, stream.device(), stream.id(), number, start_) {}
  // Where end() was not called, the wait was given up.
  ~MeasuredWait() {
    if (!ended_) counted_.end(now_ns());
  }

  // Returns how long it took.
  uint64_t end() {
    const uint64_t end = now_ns();
    ended_ = true;
    counted_.end(end);
    listed_.end();
    count_wait_at(site_, reason_, end - start_);
    return end - start_;
  }

 private:
  const uint64_t reason_;
  const uint32_t site_;
  const uint64_t start_;
  CountedWait counted_;
  ListedWait listed_;
  bool ended_ = false;
};

// Throws where the hook refuses the wait.
void tell_before(Stream& stream, WaitReason reason, const char* op) {
  if (!host_waits_are_watched() || !hooks.before_wait) return;
  hooks.before_wait({stream, reason, op, stream.unfinished(), 0});
}

void tell_after(const HostWait& wait) {
  if (hooks.after_wait && (wait.ns || host_waits_are_watched()))
    hooks.after_wait(wait);
}

}  // namespace

void while_released(const std::function<void()>& wait) {
  const Released released;
  wait();
}

void watch_host_waits(bool watch) {
  watchers_.fetch_add(watch ? 1 : -1, std::memory_order_relaxed);
}

bool host_waits_are_watched() {
  return watchers_.load(std::memory_order_relaxed) > 0;
}

void announce_host_wait(Stream& stream, WaitReason reason, const char* op) {
  if (TaskSink* capture = active_capture()) [[unlikely]]
    capture->host_waits(stream, reason);
  tell_before(stream, reason, op);
}

void host_wait(Stream& stream, uint64_t number, WaitReason reason,
               const char* op) {
  announce_host_wait(stream, reason, op);
  host_wait_announced(stream, number, reason, op);
}

namespace {

bool wait_announced(Stream& stream, uint64_t number, WaitReason reason,
                    const char* op, GoesOn goes_on) {
  tell_observers(&Observer::host_waits, stream, number, reason);
  const uint64_t retired = stream.retired().value();
  uint64_t took = 0;
  if (retired < number) {
    DeviceBlock& block = segment().devices[stream.device()];
    const int r = int(reason);
    const bool drains = number >= stream.tail();
    MeasuredWait measured({block.waits[r], block.wait_ns[r], block.waiting[r],
                           block.waiting_from[r]},
                          reason, stream, number);
    const bool done = wait(stream, number, deadline_of(reason), goes_on);
    took = measured.end();
    if (!done) return false;
    if (drains) {
      // Relaxed: statistics order nothing.
      StreamBlock& drained = stream.block();
      drained.drains[r].fetch_add(1, std::memory_order_relaxed);
      drained.drain_ns[r].fetch_add(took, std::memory_order_relaxed);
    }
  }
  const bool badly = tell_observers(&Observer::host_waited, stream, number);
  tell_after({stream, reason, op, number - std::min(number, retired), took});
  if (badly) tell_observers(&Observer::raise_found);
  return true;
}

}  // namespace

void host_wait_announced(Stream& stream, uint64_t number, WaitReason reason,
                         const char* op) {
  wait_announced(stream, number, reason, op, nullptr);
}

bool host_wait_while(Stream& stream, uint64_t number, WaitReason reason,
                     const std::function<bool()>& goes_on) {
  announce_host_wait(stream, reason, nullptr);
  return wait_announced(stream, number, reason, nullptr, &goes_on);
}

bool host_poll(Stream& stream, uint64_t number) {
  tell_observers(&Observer::host_polls, stream, number);
  if (!stream.retired().reached(number)) {
    stream.retired().want(number);
    return false;
  }
  if (tell_observers(&Observer::host_waited, stream, number))
    tell_observers(&Observer::raise_found);
  return true;
}

void tell_staged_copy(Stream& stream, const char* op) {
  tell_before(stream, kStagedCopy, op);
  tell_after({stream, kStagedCopy, op, 0, 0});
}

void host_wait_for_space(Stream& stream, uint64_t number) {
  tell_before(stream, kFullQueue, nullptr);
  tell_observers(&Observer::host_waits, stream, number, kFullQueue);
  StreamBlock& block = stream.block();
  MeasuredWait measured({block.full_waits, block.full_wait_ns,
                         block.full_waiting, block.full_waiting_from},
                        kFullQueue, stream, number);
  const std::function<bool()> is_full = [&stream] {
    return !stream.has_room();
  };
  wait(stream, number, 0, &is_full);
  tell_after({stream, kFullQueue, nullptr, stream.capacity(), measured.end()});
}

}  // namespace npu
