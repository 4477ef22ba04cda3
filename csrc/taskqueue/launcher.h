// The thread that runs a stream's tasks, and sleeps while there are none.
#pragma once

#include <cstdint>
#include <optional>

#include "csrc/placement/idle_policy.h"
#include "csrc/placement/launcher_placement.h"
#include "csrc/taskqueue/executor.h"
#include "csrc/taskqueue/launch_ahead.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

// It is constructed on the thread that it runs on.
class Launcher {
 public:
  // The stream's launcher number `number`, counted from 0.
  Launcher(Stream& stream, uint64_t number);
  // Returns once the ring is empty after a Stream::stop() of this launcher.
  void run();

 private:
  struct Idle;

  // False: the launcher is to end.
  bool wait_for_work();
  bool sleep_until_work();

  Stream& stream_;
  const uint64_t number_;
  LauncherPlacement placement_;
  Executor executor_;
  std::optional<LaunchAhead> ahead_;  // where the driver reports ends
  IdlePolicy idle_;
};

}  // namespace npu
