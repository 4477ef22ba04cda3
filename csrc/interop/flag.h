// Words of memory that tasks set and other tasks wait for, where the wait does
// not say whose task will set the word. External and interprocess events
// consist of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/base/futex.h"
#include "csrc/driver/driver.h"
#include "csrc/stats/layout.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/system.h"
#include "csrc/taskqueue/task_wait.h"

namespace npu {

class Stream;
struct StreamError;
struct Task;

// What an external event's flag says. Of an interprocess event it says how many
// records have been reached.
inline constexpr uint32_t kDown = 0, kUp = 1, kDropped = 2;

// The task that was to set a flag, and was dropped because its stream had
// failed.
struct DroppedSet {
  uint32_t process;
  int device;
  int64_t stream;
  uint64_t task;
};

// A word, which other processes may have mapped, and who has dropped its last
// change that was dropped.
template <typename System>
class BasicFlag {
 public:
  explicit BasicFlag(uint32_t value = 0) : word_(value) {}

  void set(uint32_t value) {
    // Release: whoever sees the value sees the work before it.
    word_.store(value, std::memory_order_release);
    System::futex_wake_all(&word_);
  }
  // Instead of set(), where the task that was to set the flag is dropped.
  void drop(uint32_t value, const DroppedSet& by) {
    // Relaxed: set() orders them before the value. Where two streams drop at
    // once, only the text of an error is mixed.
    process_.store(by.process, std::memory_order_relaxed);
    stream_.store(uint64_t(uint32_t(by.device)) << 32 | uint64_t(by.stream),
                  std::memory_order_relaxed);
    task_.store(by.task, std::memory_order_relaxed);
    dropped_.store(value, std::memory_order_relaxed);
    set(value);
  }
  // After reached(number): whether the record of that number, or one after it,
  // was dropped. Later records may have hidden what became of this one.
  bool dropped(uint32_t number) const {
    // Relaxed: reached() has seen the value that drop() stored after this.
    const uint32_t last = dropped_.load(std::memory_order_relaxed);
    return last != 0 && int32_t(last - number) >= 0;
  }
  // After dropped() or take() has said so.
  DroppedSet dropped_by() const {
    const uint64_t stream = stream_.load(std::memory_order_relaxed);
    return {process_.load(std::memory_order_relaxed), int(stream >> 32),
            int64_t(uint32_t(stream)), task_.load(std::memory_order_relaxed)};
  }
  // Acquire: pairs with the release in set().
  uint32_t value() const { return word_.load(std::memory_order_acquire); }

  // Takes the flag down; it was `seen`. False: it is down.
  bool take(uint32_t& seen) {
    // Acquire: pairs with the release in set().
    for (seen = kUp; !word_.compare_exchange_strong(seen, kDown,
                                                    std::memory_order_acquire);)
      if (seen == kDown) return false;
    return true;
  }
  // Whether the flag has passed the number; it is `seen`. Numbers wrap.
  bool reached(uint32_t number, uint32_t& seen) const {
    seen = value();
    return int32_t(seen - number) >= 0;
  }

  // Sleeps while the flag has this value, for some milliseconds at most.
  void sleep_while(uint32_t value) {
    System::futex_wait(&word_, value, kTaskLookNs);
  }

 private:
  template <typename T>
  using Atomic = typename System::template Atomic<T>;

  Atomic<uint32_t> word_;
  Atomic<uint32_t> dropped_{0};  // the last value that was dropped; 0: none
  Atomic<uint32_t> process_{0};  // who has dropped it
  Atomic<uint64_t> stream_{0};   // device << 32 | stream
  Atomic<uint64_t> task_{0};
};

// The engine's own futex calls are for words of one process.
struct SharedSystem : System {
  static void futex_wait(const void* word, uint32_t expected,
                         uint64_t timeout_ns) {
    npu::futex_wait(word, expected, timeout_ns, FutexOf::kMachine);
  }
  static void futex_wake_all(const void* word) {
    npu::futex_wake_all(word, FutexOf::kMachine);
  }
};
using Flag = BasicFlag<SharedSystem>;

// Words: address, value to set, value to set where the task is dropped. Whoever
// sees the first value sees all work of the stream before it.
extern const KernelWithDrop kSetFlag;
// Words: address, device. Waits until the flag is not down and takes it down.
// Fails where it was kDropped.
extern const npu_kernel kTakeFlag;
// Words: address, device, number. Waits until the flag has passed the number.
// Fails where the record of that number was dropped.
extern const npu_kernel kReachFlag;

// The error of who waits for a flag whose change was dropped. `event`: what the
// flag belongs to.
StreamError dropped_error(const Flag& flag, const char* event);

// Whether the task is one of the last two and would wait now. Launcher only.
bool waits_for_flag(const Task& task);

// Says that the stream's task `number` - 1 will set the flag, so that the
// statistics can say for whom a waiting stream waits.
void flag_will_be_set(const Flag& flag, Stream& stream, uint64_t number);

// No task will set the flag any more, and its memory may become another flag.
void flag_is_gone(const Flag& flag);

// Lives while a thread of the host waits for a flag. The wait is counted among
// the waits for events, and listed nowhere, since no stream says when it ends.
class HostWaitForFlag {
 public:
  explicit HostWaitForFlag(int device);
  ~HostWaitForFlag();

 private:
  CountedWait counted_;
};

// The stream that holds up this one for ever, as far as this process knows;
// null where it can go on. That is this stream, or one that it waits for, which
// waits for a flag (an external or interprocess event) that no queued task of
// this process sets; or one of several streams that wait for each other. It
// looks without locks: only two equal answers, one after another, are reliable.
const Stream* held_by_nobody(const Stream& stream);

// Whether that stream waits for an event that another process may record.
bool waits_for_processes(const Stream& stream);

}  // namespace npu
