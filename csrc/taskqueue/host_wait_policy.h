// How a thread's next host waits spend their time.
#pragma once

namespace npu {

// While one exists, the thread's host waits sleep at once instead of spinning.
class SleepAtOnce {
 public:
  SleepAtOnce();
  ~SleepAtOnce();
  SleepAtOnce(const SleepAtOnce&) = delete;
};

}  // namespace npu
