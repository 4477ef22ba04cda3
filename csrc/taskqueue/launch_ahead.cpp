#include "csrc/taskqueue/launch_ahead.h"

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/task_wait.h"

namespace npu {
namespace {

constexpr uint64_t kReportSpinNs = 2'000;

}  // namespace

LaunchAhead::LaunchAhead(Stream& stream, Executor& executor,
                         InFlight& in_flight)
    : stream_(stream),
      executor_(executor),
      in_flight_(in_flight),
      ring_(executor.ring()),
      launched_(ring_.front_position()) {}

void LaunchAhead::run_queued() {
  for (;;) {
    retire_ended();
    const Next next = launch_next();
    if (next == Next::kStarted) continue;
    if (alone()) return;
    wait_for_report(next);
  }
}

LaunchAhead::Next LaunchAhead::launch_next() {
  if (executor_.drops_tasks() && !alone()) {
    give_up_flights();
    return Next::kStarted;
  }
  Task* const task = ring_.at(launched_);
  if (!task) return Next::kNone;
  const TaskKind kind = task->marks.kind;
  if (kind == TaskKind::kKernel &&
      !(task->kernel->flags & NPU_KERNEL_ON_HOST) && !executor_.drops_tasks())
    return start(*task);
  if (alone()) {
    executor_.process(*task, launched_);
    ++launched_;
    return Next::kStarted;
  }
  if (kind != TaskKind::kTimestamp) return Next::kHeldBack;
  has_started();
  return Next::kStarted;
}

LaunchAhead::Next LaunchAhead::start(Task& task) {
  npu_failure failure;
  failure.text[0] = 0;
  if (launched_ - ring_.front_position() < kRecentTasks)
    stream_.block().begin(launched_, task.kernel->name, task.site);
  const int code = in_flight_.start(task.kernel, task.words(), failure);
  if (code == NPU_OK) {
    has_started();
    return Next::kStarted;
  }
  // The device has no room for the task, or refuses it. A refusal counts only
  // once all tasks before it have ended without failure.
  if (!alone()) return Next::kHeldBack;
  if (code == NPU_BUSY) {
    InFlight::rest();
    return Next::kStarted;
  }
  executor_.failed(code, task, launched_, failure);
  flight(launched_).started = ticks();
  retire(task, launched_);
  ++launched_;
  return Next::kStarted;
}

// Notes the task at launched_ as started. It is done when the task that was
// handed to the device last has ended: that is the task itself where it is a
// kernel, and the kernel before it where it is a note of the time.
void LaunchAhead::has_started() {
  flight(launched_) = {in_flight_.started(), ticks()};
  ++launched_;
}

void LaunchAhead::retire_ended() {
  while (!alone()) {
    const uint64_t position = ring_.front_position();
    const uint64_t number = flight(position).number;
    if (!in_flight_.ended(number)) return;
    Task& task = *ring_.front();
    if (task.marks.kind == TaskKind::kTimestamp) {
      if (!note_stated_time(task, position)) executor_.process(task, position);
    } else {
      const npu_failure* const failure = in_flight_.failure_of(number);
      if (failure) executor_.failed(failure->code, task, position, *failure);
      retire(task, position);
      if (failure) return give_up_flights();
    }
    show(position + kRecentTasks);
  }
}

// Lists a task among the stream's recent ones. More tasks may be in flight than
// that list holds; it shows the oldest of them, so that the one which the
// device is running is among them.
void LaunchAhead::show(uint64_t position) {
  if (position >= launched_) return;
  const Task& task = *ring_.at(position);
  stream_.block().begin(position, name_of(task), task.site);
}

// For a driver that says when its tasks ended: notes the time at which the last
// task before the note ended, or at which the launcher reached the note, if
// that was later. Returns false where the driver does not say it.
bool LaunchAhead::note_stated_time(Task& task, uint64_t position) {
  const InFlight::Flight& noted = flight(position);
  uint64_t begun, ended;
  if (executor_.drops_tasks() || !in_flight_.times(noted.number, begun, ended))
    return false;
  const uint64_t here = ns_at(noted.started);
  stream_.block().begin(position, name_of(task), task.site);
  reinterpret_cast<TimeCell*>(task.words()[0])->set(std::max(ended, here));
  retire(task, position);
  return true;
}

// Unless the driver says when the task began and ended, it began when it was
// started or when the task before it ended, whichever was later, and it ends
// now.
void LaunchAhead::retire(Task& task, uint64_t position) {
  if (!task.stamp) {
    executor_.retire(task, position);
    last_end_ = ticks();
    return;
  }
  uint64_t begun = std::max(flight(position).started, last_end_);
  uint64_t ended = ticks();
  if (uint64_t from, to; !executor_.drops_tasks() && task.kernel &&
                         in_flight_.times(flight(position).number, from, to)) {
    const uint64_t now = now_ns();
    const auto ticks_at = [&](uint64_t ns) {
      return ended - ns_to_ticks(now - ns);
    };
    // The driver's times are of another clock; where they contradict ours by a
    // little, the conversion between the two has lost that much.
    begun = std::max(begun, ticks_at(from));
    ended = std::max(begun, ticks_at(to));
  }
  executor_.retire_stamped(task, position, begun, ended);
  last_end_ = ended;
}

// Drops what is in flight of a stream that has failed: the device does nothing
// more of it. The reset also makes the queue take tasks again, and is needed
// for that where nothing was behind the task that failed.
void LaunchAhead::give_up_flights() {
  in_flight_.reset();
  while (!alone()) {
    const uint64_t position = ring_.front_position();
    Task& task = *ring_.front();
    executor_.drop(task, position);
    retire(task, position);
  }
}

// Waits until the device reports an end, the next task can be started, or the
// stream fails.
void LaunchAhead::wait_for_report(Next next) {
  const uint64_t number = flight(ring_.front_position()).number;
  const auto due = [&] {
    return in_flight_.ended(number) ||
           (next == Next::kNone && ring_.at(launched_)) ||
           executor_.drops_tasks();
  };
  spin_then_sleep(
      kReportSpinNs, due, [] { return false; },
      [&] { executor_.parking().park(due); });
}

}  // namespace npu
