// Words of memory that tasks set and other tasks wait for, where the wait does
// not say whose task will set the word. External and interprocess events
// consist of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/driver/driver.h"
#include "csrc/stats/layout.h"
#include "csrc/taskqueue/system.h"
#include "csrc/taskqueue/task_wait.h"

namespace npu {

class Stream;
struct Task;

// One word, which other processes may have mapped.
template <typename System>
class BasicFlag {
 public:
  explicit BasicFlag(uint32_t value = 0) : word_(value) {}

  void set(uint32_t value) {
    // Release: whoever sees the value sees the work before it.
    word_.store(value, std::memory_order_release);
    System::futex_wake_all(&word_);
  }
  // Acquire: pairs with the release in set().
  uint32_t value() const { return word_.load(std::memory_order_acquire); }

  // Replaces 1 by 0. False: the flag was `seen`.
  bool take(uint32_t& seen) {
    seen = 1;
    // Acquire: pairs with the release in set().
    return word_.compare_exchange_strong(seen, 0, std::memory_order_acquire);
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
  typename System::template Atomic<uint32_t> word_;
};

// The engine's own futex calls are for words of one process.
struct SharedSystem : System {
  static void futex_wait(const void* word, uint32_t expected,
                         uint64_t timeout_ns);
  static void futex_wake_all(const void* word);
};
using Flag = BasicFlag<SharedSystem>;

// Words: address, value to set. Whoever sees the value sees all work of the
// stream before it.
extern const npu_kernel kSetFlag;
// Words: address, device. Waits for 1 and leaves 0.
extern const npu_kernel kTakeFlag;
// Words: address, device, number. Waits until the flag has passed the number.
extern const npu_kernel kReachFlag;

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

}  // namespace npu
