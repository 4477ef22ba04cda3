// How a thread's next host waits spend their time.
#pragma once

#include <stdexcept>

namespace npu {

// While one exists, the thread's host waits sleep at once instead of spinning.
class SleepAtOnce {
 public:
  SleepAtOnce();
  ~SleepAtOnce();
  SleepAtOnce(const SleepAtOnce&) = delete;
};

// While one exists, a host wait of the thread that would have to wait throws a
// LauncherWait instead: the thread runs a stream's tasks.
class NoHostWaits {
 public:
  NoHostWaits();
  ~NoHostWaits();
  NoHostWaits(const NoHostWaits&) = delete;
};

struct LauncherWait : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace npu
