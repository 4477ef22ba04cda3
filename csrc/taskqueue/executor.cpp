#include "csrc/taskqueue/executor.h"

#include <stdio.h>

#include <new>

#include "csrc/base/clock.h"
#include "csrc/observe/work_names.h"
#include "csrc/placement/launcher_placement.h"
#include "csrc/placement/tuning.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/task_wait.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {

Executor::Executor(Stream& stream, LauncherPlacement* placement)
    : stream_(stream), placement_(placement), notes_(stream) {}

void Executor::run_queued() {
  Ring<Task>& ring = stream_.ring_;
  while (Task* const task = ring.front()) {
    if (placement_->gives_way()) [[unlikely]]
      placement_->give_way();
    process(*task, ring.front_position());
  }
}

void Executor::step() {
  process(*stream_.ring_.front(), stream_.ring_.front_position());
}

void Executor::process(Task& task, uint64_t position) {
  if (task.stamp) [[unlikely]]
    return process_stamped(task, position);
  perform(task, position);
  retire(task, position);
}

void Executor::process_stamped(Task& task, uint64_t position) {
  const TaskNotes::Running running = notes_.begins(task, position, ticks());
  perform(task, position);
  finish(task, running, ticks());
}

void Executor::retire_stamped(Task& task, uint64_t position, uint64_t begun,
                              uint64_t ended) {
  finish(task, notes_.begins(task, position, begun), ended);
}

void Executor::finish(Task& task, TaskNotes::Running running, uint64_t ended) {
  const uint64_t position = running.position;
  notes_.ends(task, running, ended);
  retire(task, position);
  // While somebody traces or profiles, every task has a stamp; the statistics
  // are of the sampled ones only.
  if (!is_sampled(position)) return;
  const uint64_t now = notes_.count(running);
  if (placement_) placement_->look(now, stream_.tail());
  obey_control();
}

// Inlined: a call would add a tenth to what the launcher spends on a task
// (launcher_per_task of bench/cpp).
[[gnu::always_inline]] inline void Executor::perform(Task& task,
                                                     uint64_t position) {
  if (drops_tasks()) [[unlikely]]
    return drop(task, position);
  npu_failure failure;
  failure.text[0] = 0;
  const int code = execute(task, position, failure);
  if (code == NPU_OK) [[likely]]
    return;
  failed(code, task, position, failure);
}

void Executor::failed(int code, Task& task, uint64_t position,
                      const npu_failure& failure) {
  StreamBlock& block = *stream_.block_;
  bump(block.failed);
  block.begin(position, name_of(task), task.site | RecentTask::kFailed);
  stream_.fail(code, task, position, failure.text);
}

void Executor::drop(Task& task, uint64_t position) {
  StreamBlock& block = *stream_.block_;
  bump(block.dropped);
  block.begin(position, name_of(task), task.site | RecentTask::kDropped);
  if (task.marks.kind == TaskKind::kTimestamp)
    reinterpret_cast<TimeCell*>(task.words()[0])->release();
  else if (task.marks.kind == TaskKind::kProgram)
    reinterpret_cast<Program*>(task.words()[0])->dropped(stream_, task.words());
  else if (task.marks.kind == TaskKind::kKernel)
    drop_kernel(*task.kernel, stream_, task.words());
}

int Executor::execute(Task& task, uint64_t position, npu_failure& failure) {
  if (task.marks.kind != TaskKind::kKernel) [[unlikely]]
    return execute_own(task, position, failure);
  stream_.block_->begin(position, task.kernel->name, task.site);
  return stream_.queue_.run(task.kernel, task.words(), failure);
}

// Runs a task of the engine's own, which the driver does not see. The launcher
// goes on where there is no memory for what the task needs.
int Executor::execute_own(Task& task, uint64_t position,
                          npu_failure& failure) try {
  StreamBlock& block = *stream_.block_;
  switch (task.marks.kind) {
    case TaskKind::kWait: {
      block.begin(position, kWaitName, task.site);
      Stream& other = *reinterpret_cast<Stream*>(task.words()[0]);
      const uint64_t number = task.words()[1];
      if (!hold(other, number)) {
        snprintf(failure.text, sizeof failure.text,
                 "the stream was stopped while it waited for another one");
        return NPU_ERROR;
      }
      // This stream's later tasks would read what the failed one was to write.
      const auto error = other.error();
      if (!error || error->task >= number) return NPU_OK;
      const StreamError& first = error->cause ? *error->cause : *error;
      snprintf(failure.text, sizeof failure.text,
               "waited for another stream which has failed: %s",
               first.message().c_str());
      return error->code;
    }
    case TaskKind::kTimestamp:
      block.begin(position, kRecordName, task.site);
      reinterpret_cast<TimeCell*>(task.words()[0])->set(now_ns());
      return NPU_OK;
    case TaskKind::kProgram:
      block.begin(position, task.kernel->name, task.site);
      return reinterpret_cast<Program*>(task.words()[0])
          ->run(stream_, stream_.queue_, task.words(), failure);
    case TaskKind::kKernel:
      break;
  }
  __builtin_unreachable();
} catch (const std::bad_alloc&) {
  snprintf(failure.text, sizeof failure.text, "out of host memory");
  return NPU_OUT_OF_MEMORY;
}

// False: the stream was stopped meanwhile.
bool Executor::hold(Stream& other, uint64_t number) {
  if (other.retired().reached(number)) return true;
  StreamBlock& block = *stream_.block_;
  block.held_until.store(number, std::memory_order_relaxed);
  block.held_by.store(
      1 + uint64_t(other.id()) + (uint64_t(other.device()) << 32),
      std::memory_order_relaxed);
  // For the statistics only.
  const char* name = other.block_->running(other.retired().value());
  RunningTime& held =
      block.held[int(is_copy(name) ? Hold::kCopy : Hold::kEvent)];
  held.start(now_ns());
  if (placement_) placement_->rests();
  const bool reached =
      wait_in_task(other.retired(), number, tuning::kHoldSpinNs,
                   [this] { return stream_.failed(); });
  if (placement_) placement_->works(now_ns(), stream_.tail());
  held.stop(now_ns());
  block.held_by.store(0, std::memory_order_relaxed);
  return reached;
}

}  // namespace npu
