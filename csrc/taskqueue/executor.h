// Runs the tasks of one stream in order, and retires them.
#pragma once

#include <cstdint>

#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task_notes.h"

namespace npu {

class LauncherPlacement;

// One thread at a time uses it: the stream's launcher, or one in its place.
class Executor {
 public:
  // `placement`: the launcher thread's own; null without one.
  explicit Executor(Stream& stream, LauncherPlacement* placement = nullptr);

  // Runs what is queued until nothing is; needs a placement.
  void run_queued();
  // Runs the oldest task; there must be one.
  void step();

  // The parts of run_queued(), for callers that run tasks in another way.
  //
  // Runs the task and retires it.
  void process(Task& task, uint64_t position);
  // Does what the task says; returns its outcome.
  int execute(Task& task, uint64_t position, npu_failure& failure);
  // The task has failed, and with it the stream.
  [[gnu::cold, gnu::noinline]] void failed(int code, Task& task,
                                           uint64_t position,
                                           const npu_failure& failure);
  // Gives up a task of a stream that has failed.
  [[gnu::cold, gnu::noinline]] void drop(Task& task, uint64_t position);
  bool drops_tasks() const;
  // Gives the task's memory and slot back, and tells those who wait for it.
  void retire(Task& task, uint64_t position);
  // Like retire(), for a task that carries a stamp, and that began and ended at
  // these ticks.
  void retire_stamped(Task& task, uint64_t position, uint64_t begun,
                      uint64_t ended);

  Ring<Task>& ring() { return stream_.ring_; }
  const DeviceQueue& queue() const { return stream_.queue_; }
  Parking& parking() { return stream_.parking_; }

 private:
  [[gnu::noinline]] void process_stamped(Task& task, uint64_t position);
  void finish(Task& task, TaskNotes::Running running, uint64_t ended);
  void perform(Task& task, uint64_t position);
  int execute_own(Task& task, uint64_t position, npu_failure& failure);
  bool hold(Stream& other, uint64_t number);

  Stream& stream_;
  LauncherPlacement* const placement_;
  TaskNotes notes_;
};

inline bool Executor::drops_tasks() const {
  // Relaxed: it is this thread that sets kFailed (or force_stop(), for which
  // the next task is early enough), and clear_error() resets it only while
  // nothing is queued.
  return stream_.gate_.load(std::memory_order_relaxed) & Stream::kFailed;
}

inline void Executor::retire(Task& task, uint64_t position) {
  if (task.marks.spilled) [[unlikely]]
    stream_.arena_.give(task.words());
  // Stored before the advance, so that whoever has waited for it reads it.
  stream_.block_->retired.store(position + 1, std::memory_order_relaxed);
  if (stream_.ring_.retire()) [[unlikely]]
    stream_.waiters_.retired(stream_, position + 1);
}

}  // namespace npu
