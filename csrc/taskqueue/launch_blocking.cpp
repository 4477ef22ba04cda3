#include "csrc/taskqueue/launch_blocking.h"

#include "csrc/base/env.h"

namespace npu {
namespace {

thread_local bool thread_blocks_ = false;
// Relaxed: a launcher that does not see it yet calls it a little later.
std::atomic<void (*)()> control_hook_{nullptr};

}  // namespace

std::atomic<bool>& process_blocks() {
  static std::atomic<bool> blocks{env_flag("NPU_LAUNCH_BLOCKING") ||
                                  env_flag("ASCEND_LAUNCH_BLOCKING") ||
                                  env_string("TASK_QUEUE_ENABLE", "1") == "0"};
  return blocks;
}

bool& thread_blocks() { return thread_blocks_; }

bool launch_blocks() {
  return thread_blocks_ || process_blocks().load(std::memory_order_relaxed);
}

void set_control_hook(void (*hook)()) {
  control_hook_.store(hook, std::memory_order_relaxed);
}

void look_at_control() {
  if (auto* const hook = control_hook_.load(std::memory_order_relaxed)) hook();
}

}  // namespace npu
