// How the launcher drives a device whose tasks end after their start has
// returned: it starts what it can, and retires in order what has ended. A task
// keeps its slot, and so its words, until then.
//
// Kernels are started behind one another. A note of the time is taken when all
// before it has ended. Everything else the launcher does itself, when nothing
// is in flight: it may wait for others, who may wait for what was in flight.
#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/observe/profile.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/launcher.h"

namespace npu {
namespace {

constexpr uint64_t kReportSpinTicks = 5'000;

}  // namespace

void Launcher::run_ahead() {
  Ring<Task>& ring = stream_.ring_;
  flights_.resize(ring.capacity());
  launched_ = ring.front_position();
  for (;;) {
    retire_ended();
    if (launch_next()) continue;
    ring.flush();
    if (ring.front_position() < launched_) {
      wait_for_report();
    } else if (!wait_for_work()) {
      return;
    }
  }
}

// False: there is none, or it waits for a report (blocked_).
bool Launcher::launch_next() {
  Ring<Task>& ring = stream_.ring_;
  blocked_ = false;
  if (drops_tasks() && ring.front_position() < launched_) {
    give_up_flights();
    return true;
  }
  Task* const task = ring.at(launched_);
  if (!task) return false;
  const TaskKind kind = task->marks.kind;
  const bool starts = kind == TaskKind::kKernel &&
                      !(task->kernel->flags & NPU_KERNEL_ON_HOST) &&
                      !drops_tasks();
  const bool alone = ring.front_position() == launched_;
  if (starts) return start_next(*task);
  if (kind == TaskKind::kTimestamp && !alone) {
    // Done when what was started last has ended.
    flights_[launched_ % flights_.size()] = {
        stream_.queue_.in_flight()->started(), ticks()};
    ++launched_;
    return true;
  }
  blocked_ = !alone;
  if (blocked_) return false;
  process(*task, launched_);
  ++launched_;
  return true;
}

bool Launcher::start_next(Task& task) {
  InFlight& in_flight = *stream_.queue_.in_flight();
  const bool alone = stream_.ring_.front_position() == launched_;
  npu_failure failure;
  failure.text[0] = 0;
  stream_.block_->begin(launched_, task.kernel->name, task.site);
  const int code = in_flight.start(task.kernel, task.words(), failure);
  if (code == NPU_OK) {
    flights_[launched_ % flights_.size()] = {in_flight.started(), ticks()};
    ++launched_;
    return true;
  }
  if (!alone) {
    // No room; or it cannot be started, which counts once all before it has
    // ended well.
    blocked_ = true;
    return false;
  }
  if (code == NPU_BUSY) {
    pause();
    return true;
  }
  failed(code, task, launched_, failure);
  retire(task, launched_);
  ++launched_;
  return true;
}

void Launcher::retire_ended() {
  Ring<Task>& ring = stream_.ring_;
  InFlight& in_flight = *stream_.queue_.in_flight();
  while (ring.front_position() < launched_) {
    const uint64_t position = ring.front_position();
    const uint64_t number = flights_[position % flights_.size()].number;
    if (!in_flight.ended(number)) return;
    Task& task = *ring.front();
    if (task.marks.kind == TaskKind::kTimestamp) {
      if (!note_stated_time(task, position)) process(task, position);
      continue;
    }
    const npu_failure* const failure = in_flight.failure_of(number);
    if (failure) failed(failure->code, task, position, *failure);
    retire_flight(task, position);
    if (failure) return give_up_flights();
  }
}

// Of a driver that says when its tasks ended. The note is of the time at which
// the last of them did, or at which the launcher came here, if that was later.
bool Launcher::note_stated_time(Task& task, uint64_t position) {
  const Flight& flight = flights_[position % flights_.size()];
  uint64_t begun, ended;
  if (drops_tasks() ||
      !stream_.queue_.in_flight()->times(flight.number, begun, ended))
    return false;
  const auto here =
      now_ns() -
      uint64_t(double(ticks_between(flight.started, ticks())) * ns_per_tick_);
  stream_.block_->begin(position, name_of(task), task.site);
  reinterpret_cast<TimeCell*>(task.words()[0])->set(std::max(ended, here));
  retire_flight(task, position);
  return true;
}

// With all that process_stamped() notes of a task. It began when it was started
// or the one before it ended, whichever was later.
void Launcher::retire_flight(Task& task, uint64_t position) {
  if (!task.stamp) {
    retire(task, position);
    return;
  }
  const Flight& flight = flights_[position % flights_.size()];
  uint64_t begun = std::max(flight.started, last_end_), end = ticks();
  if (uint64_t from, to;
      !drops_tasks() && task.kernel &&
      stream_.queue_.in_flight()->times(flight.number, from, to)) {
    const uint64_t now = now_ns();
    const auto ticks_at = [&](uint64_t ns) {
      return end - uint64_t(double(now - ns) / ns_per_tick_);
    };
    begun = ticks_at(from);
    end = ticks_at(to);
  }
  const Sample sample = sample_of(task, begun);
  note_depth(position);
  if (StreamProfile* const profiled = stream_.profile();
      profiled && !drops_tasks()) {
    profiled->starts(position);
    profile(*profiled, task, begun);
  }
  if (is_traced()) add_trace(task, position, begun, end);
  last_end_ = end;
  retire(task, position);
  if (is_sampled(position)) count(position, sample);
}

// Of a stream that has failed: what the device has not done, it will not do.
void Launcher::give_up_flights() {
  stream_.queue_.in_flight()->reset();
  Ring<Task>& ring = stream_.ring_;
  while (ring.front_position() < launched_) {
    const uint64_t position = ring.front_position();
    Task& task = *ring.front();
    drop(task, position);
    retire_flight(task, position);
  }
}

// Until the device reports, the next task can be started, or the stream fails.
void Launcher::wait_for_report() {
  Ring<Task>& ring = stream_.ring_;
  InFlight& in_flight = *stream_.queue_.in_flight();
  const uint64_t oldest = ring.front_position();
  const uint64_t number = flights_[oldest % flights_.size()].number;
  // What it runs now; more may be in flight than the recent tasks hold.
  stream_.block_->begin(oldest, name_of(*ring.front()), ring.front()->site);
  const auto due = [&] {
    return in_flight.ended(number) || (!blocked_ && ring.at(launched_)) ||
           drops_tasks();
  };
  const uint64_t start = ticks();
  do {
    if (due()) return;
    pause();
  } while (ticks_between(start, ticks()) < kReportSpinTicks);
  stream_.parking_.park(due);
}

}  // namespace npu
