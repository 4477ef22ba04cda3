#include "csrc/taskqueue/this_thread.h"

#include "csrc/placement/core_share.h"
#include "csrc/taskqueue/host_wait_policy.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

thread_local Stream* launching = nullptr;
void (*after_direct_task_)() = nullptr;
void (*in_place_)(void (*)(void*), void*) = nullptr;

}  // namespace

void launch_on_this_thread(Stream& stream) { launching = &stream; }
Stream* stream_of_this_thread() { return launching; }

int core_share_here(int all) {
  return launching ? core_share(all, launching->device(), launching->id())
                   : core_share(all);
}

void set_in_place_hook(void (*hook)(void (*)(void*), void*)) {
  in_place_ = hook;
}
void in_place_of(Stream& stream, void (*work)(void*), void* context) {
  struct Here {
    explicit Here(Stream& stream) { launching = &stream; }
    ~Here() { launching = before; }
    Stream* const before = launching;
    const NoHostWaits it_is_waited_for;
  } const here(stream);
  if (in_place_)
    in_place_(work, context);
  else
    work(context);
}

void set_after_direct_task_hook(void (*hook)()) { after_direct_task_ = hook; }
void after_direct_task() {
  if (after_direct_task_) after_direct_task_();
}

}  // namespace npu
