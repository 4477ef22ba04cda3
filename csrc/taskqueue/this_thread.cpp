#include "csrc/taskqueue/this_thread.h"

#include "csrc/placement/core_share.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

thread_local Stream* launching = nullptr;
void (*after_direct_task_)() = nullptr;

}  // namespace

void launch_on_this_thread(Stream& stream) { launching = &stream; }
Stream* stream_of_this_thread() { return launching; }

int core_share_here(int all) {
  return launching ? core_share(all, launching->device(), launching->id())
                   : core_share(all);
}

void set_after_direct_task_hook(void (*hook)()) { after_direct_task_ = hook; }
void after_direct_task() {
  if (after_direct_task_) after_direct_task_();
}

}  // namespace npu
