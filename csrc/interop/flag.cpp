#include "csrc/interop/flag.h"

#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <mutex>
#include <optional>

#include "csrc/base/clock.h"
#include "csrc/engine/force_stop.h"
#include "csrc/observe/observer.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

constexpr long kLookNs = 20'000'000;

// The task that sets a flag next, as far as this process knows.
struct Setter {
  Stream* stream;
  uint64_t number;
};
struct Setters {
  std::mutex mutex;
  std::map<const Flag*, Setter> by_flag;
};

// Never destroyed: launchers may wait at exit.
Setters& setters() {
  static Setters* const instance = new Setters;
  return *instance;
}

// Publishes, from look() until its destruction, that this thread's stream
// waits, and for whom. A wait may begin before anybody has queued the task that
// sets the flag, so look() is called again and again. An inline stream's task
// waits on a thread of the host.
class HeldByFlag {
 public:
  HeldByFlag(const Flag& flag, int device) : flag_(flag), device_(device) {}
  HeldByFlag(const HeldByFlag&) = delete;
  ~HeldByFlag() {
    if (!looked_) return;
    held().stop(now_ns());
    publish(0, 0);
  }

  void look() {
    if (!stream_) {
      if (!host_) host_.emplace(device_);
      return;
    }
    if (!looked_) held().start(now_ns());
    looked_ = true;
    std::lock_guard lock(setters().mutex);
    const auto at = setters().by_flag.find(&flag_);
    if (at == setters().by_flag.end()) return;
    const auto& [by, number] = at->second;
    if (by->retired().reached(number)) return publish(0, 0);
    publish(1 + uint64_t(by->id()) + (uint64_t(by->device()) << 32), number);
  }

 private:
  // Relaxed: statistics order nothing.
  void publish(uint64_t by, uint64_t number) {
    StreamBlock& block = stream_->block();
    block.held_until.store(number, std::memory_order_relaxed);
    block.held_by.store(by, std::memory_order_relaxed);
  }

  RunningTime& held() { return stream_->block().held[int(Hold::kEvent)]; }

  const Flag& flag_;
  const int device_;
  Stream* const stream_ = stream_of_this_thread();
  std::optional<HostWaitForFlag> host_;
  bool looked_ = false;
};

// The engine's own futex calls are for words of one process; other processes
// may share these.
void wake_all(Flag& flag) {
  syscall(SYS_futex, &flag, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Flag& flag_of(const uint64_t* words) {
  return *reinterpret_cast<Flag*>(words[0]);
}

bool is_reached(uint32_t now, uint64_t number) {
  return int32_t(now - uint32_t(number)) >= 0;
}

int failed(npu_failure* failure, const char* text) {
  snprintf(failure->text, sizeof failure->text, "%s", text);
  return NPU_ERROR;
}

int run_set(const npu_kernel*, const uint64_t* words, npu_failure*) {
  // Release: whoever sees the value sees the stream's earlier work.
  flag_of(words).store(uint32_t(words[1]), std::memory_order_release);
  wake_all(flag_of(words));
  return NPU_OK;
}

int run_take(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  Flag& flag = flag_of(words);
  HeldByFlag held(flag, int(words[1]));
  for (;;) {
    uint32_t one = 1;
    // Acquire: pairs with the release in run_set().
    if (flag.compare_exchange_strong(one, 0, std::memory_order_acquire))
      return NPU_OK;
    if (device_stopped(int(words[1])))
      return failed(failure,
                    "the wait for an external event was ended by a FORCE STOP "
                    "of the device");
    if (Observer* o = observer(); o && o->runs_tasks()) {
      if (o->flag_polled()) continue;
      return failed(failure,
                    "this wait for an external event would never end: nothing "
                    "that can run records the event; record() it before the "
                    "host waits, on a stream that does not wait for this one");
    }
    held.look();
    sleep_while(flag, one);
  }
}

int run_reach(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  Flag& flag = flag_of(words);
  HeldByFlag held(flag, int(words[1]));
  for (;;) {
    const uint32_t now = flag.load(std::memory_order_acquire);
    if (is_reached(now, words[2])) return NPU_OK;
    if (device_stopped(int(words[1])))
      return failed(failure,
                    "the wait for an interprocess event was ended by a FORCE "
                    "STOP of the device");
    // Where there is nothing to run, another process has yet to set the flag.
    if (Observer* o = observer(); o && o->runs_tasks() && o->flag_polled())
      continue;
    held.look();
    sleep_while(flag, now);
  }
}

}  // namespace

const npu_kernel kSetFlag{run_set, "event record", nullptr, 0,
                          NPU_KERNEL_ON_HOST};
const npu_kernel kTakeFlag{run_take, "external event wait", nullptr, 0,
                           NPU_KERNEL_ON_HOST};
const npu_kernel kReachFlag{run_reach, "interprocess event wait", nullptr, 0,
                            NPU_KERNEL_ON_HOST};

bool waits_for_flag(const Task& task) {
  const bool takes = task.kernel == &kTakeFlag;
  if (!takes && task.kernel != &kReachFlag) return false;
  const uint64_t* words = task.words();
  // Relaxed: whoever runs the task looks again.
  const uint32_t now = flag_of(words).load(std::memory_order_relaxed);
  return takes ? now != 1 : !is_reached(now, words[2]);
}

// Counts in the same counters as a wait for an event of a stream.
HostWaitForFlag::HostWaitForFlag(int device)
    : counted_([device] {
        constexpr int kReason = int(WaitReason::kEventSync);
        DeviceBlock& block = segment().devices[device];
        return CountedWait(block.waits[kReason], block.wait_ns[kReason],
                           block.waiting[kReason], block.waiting_from[kReason],
                           now_ns());
      }()) {}
HostWaitForFlag::~HostWaitForFlag() { counted_.end(now_ns()); }

void flag_will_be_set(const Flag& flag, Stream& stream, uint64_t number) {
  std::lock_guard lock(setters().mutex);
  setters().by_flag[&flag] = {&stream, number};
}

void sleep_while(Flag& flag, uint32_t value) {
  const timespec limit{0, kLookNs};
  syscall(SYS_futex, &flag, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace npu
