// Words of memory that tasks set and other tasks wait for, where the wait does
// not say whose task will set the word. External and interprocess events
// consist of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/driver/driver.h"
#include "csrc/stats/layout.h"

namespace npu {

class Stream;
struct Task;

using Flag = std::atomic<uint32_t>;

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

// Sleeps while the flag has this value, for some milliseconds at most.
void sleep_while(Flag& flag, uint32_t value);

}  // namespace npu
