#include "csrc/taskqueue/this_thread.h"

#include "csrc/base/env.h"
#include "csrc/placement/core_share.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

thread_local Stream* launching = nullptr;
thread_local bool thread_blocks_ = false;

}  // namespace

void launch_on_this_thread(Stream& stream) { launching = &stream; }
Stream* stream_of_this_thread() { return launching; }

int core_share_here(int all) {
  return launching ? core_share(all, launching->device(), launching->id())
                   : core_share(all);
}

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

}  // namespace npu
