// Words of memory that tasks set and that other tasks wait for, without saying
// whose task will: what external and interprocess events are made of.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/driver/driver.h"
#include "csrc/stats/layout.h"

namespace npu {

class Stream;
struct Task;

using Flag = std::atomic<uint32_t>;

// Words: address, value to set. All work of the stream before it is visible to
// whoever sees the value.
extern const npu_kernel kSetFlag;
// Words: address, device. Waits for 1 and leaves 0.
extern const npu_kernel kTakeFlag;
// Words: address, device, number. Waits until the flag has passed the number.
extern const npu_kernel kReachFlag;

// Whether the task is one of the last two and would wait now. Launcher only.
bool waits_for_flag(const Task& task);

// Says that the stream's task `number` - 1 will set the flag, so that who waits
// for it can be told whom it waits for.
void flag_will_be_set(const Flag& flag, Stream& stream, uint64_t number);

// A thread of the host waits for a flag while this lives: counted among the
// waits for events, and listed nowhere, since no stream says when it ends.
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
