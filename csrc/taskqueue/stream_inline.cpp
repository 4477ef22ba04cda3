// A stream without a launcher: its tasks run on the thread that submits them. A
// task that is launched by another runs in the middle of that one.
#include "csrc/base/clock.h"
#include "csrc/base/hooks.h"
#include "csrc/observe/observer.h"
#include "csrc/placement/policy.h"
#include "csrc/taskqueue/executor.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {

bool Stream::begin_inline(uint32_t n_words, Submission& s, CallSite site) {
  std::unique_lock lock = lock_released(inline_mutex_);
  // begin() has asked this before; by now the tasks before this one are done.
  if (failed()) return false;
  s.position = tail();
  // The task's memory comes first: nothing owns the chunk of arguments yet, so
  // nothing may throw once there is one.
  if (inline_tasks_.size() == inline_depth_) {
    policy();  // the task may use it, and could tell nobody of a lack of memory
    inline_tasks_.push_back(std::make_unique<Task>());
  }
  uint64_t* chunk =
      n_words > Task::kInlineWords ? arena_.take(n_words) : nullptr;
  lock.release();  // commit() unlocks it
  Task& task = *inline_tasks_[inline_depth_];
  fill(task, chunk, s, site);
  task.stamp = s.gate & kTimed ? ticks() : 0;
  return true;
}

// Tasks are numbered in the order in which they end: a task that launched
// others comes after them.
void Stream::commit_inline(Submission& s) {
  npu_failure failure;
  failure.text[0] = 0;
  const uint64_t begun = s.task->stamp ? ticks() : 0;
  ++inline_depth_;
  const int code = inline_executor_->execute(*s.task, s.position, failure);
  --inline_depth_;
  if (!inline_depth_ && hooks.after_direct_task) hooks.after_direct_task();
  s.position = tail();
  if (begun && is_work(*s.task)) [[unlikely]]
    tell_observers(&Observer::ran, *this,
                   TaskRun{s.position, s.task->kernel->name, s.task->stamp,
                           begun, ticks()});
  if (code != NPU_OK) {
    bump(block_->failed);
    fail(code, *s.task, s.position, failure.text);
  }
  if (s.task->marks.spilled) arena_.give(s.words);
  block_->retired.store(s.position + 1, std::memory_order_relaxed);
  if (ring_.pass()) waiters_.retired(*this, s.position + 1);
  count_bypass(Bypass::kSyncLaunchStream);
  inline_mutex_.unlock();
}

}  // namespace npu
