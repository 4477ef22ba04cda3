#include "csrc/taskqueue/launcher.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/engine/blocking.h"
#include "csrc/interop/flag.h"
#include "csrc/observe/profile.h"
#include "csrc/observe/trace.h"
#include "csrc/observe/work_names.h"
#include "csrc/placement/core_share.h"
#include "csrc/placement/openmp_crowd.h"
#include "csrc/placement/urgency.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait_policy.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

// For another stream's task, before sleeping.
constexpr uint64_t kHoldSpinUs = 60;
constexpr uint64_t kStarvedNs = 1'000'000;

bool only_core() {
  static const bool only = usable_cores() == 1;
  return only;
}

}  // namespace

const char* Launcher::name_of(const Task& task) {
  if (task.kernel) return task.kernel->name;
  return task.marks.kind == TaskKind::kTimestamp ? kRecordName : kWaitName;
}

Launcher::Launcher(Stream& stream)
    : stream_(stream),
      urgent_(stream.priority_ < 0),
      ns_per_tick_(ns_per_tick()),
      ticks_per_us_(uint64_t(1000 / ns_per_tick())),
      idle_(ticks_per_us_, only_core()) {}

void Launcher::run(uint64_t number) {
  number_ = number;
  StreamBlock& block = *stream_.block_;
  launch_on_this_thread(stream_);
  Seat seat;
  seat_ = &seat;
  block.thread.store(uint64_t(gettid()), std::memory_order_relaxed);
  block.alive.start(now_ns());
  NoHostWaits it_is_waited_for;
  if (urgent_) urgent_begins(stream_.device_);
  stream_.queue_.in_flight() ? run_ahead() : run_in_turn();
  make_room(false);
  seat_ = nullptr;
  block.alive.stop(now_ns());
  block.thread.store(0, std::memory_order_relaxed);
}

void Launcher::run_in_turn() {
  Ring<Task>& ring = stream_.ring_;
  for (;;) {
    if (Task* task = ring.front()) {
      if (urgent_need_all(stream_.device_) && !urgent_) [[unlikely]] {
        ring.flush();
        give_way(stream_.device_);
      }
      process(*task, ring.front_position());
    } else {
      ring.flush();
      if (!wait_for_work()) return;
    }
  }
}

bool Launcher::ready() const {
  const Task* task = stream_.ring_.front();
  if (!task) return false;
  // A failed stream drops its tasks.
  return stream_.failed() || (!held_by() && !waits_for_flag(*task));
}

Stream* Launcher::held_by() const {
  const Task* task = stream_.ring_.front();
  if (!task || task->marks.kind != TaskKind::kWait) return nullptr;
  const uint64_t* words = task->words();
  Stream* other = reinterpret_cast<Stream*>(words[0]);
  return other->retired().reached(words[1]) ? nullptr : other;
}

bool Launcher::held_by_flag() const {
  const Task* task = stream_.ring_.front();
  return task && waits_for_flag(*task);
}

bool Launcher::held_by_event() const {
  return held_by_flag() && stream_.ring_.front()->kernel == &kTakeFlag;
}

void Launcher::step() {
  process(*stream_.ring_.front(), stream_.ring_.front_position());
  stream_.ring_.flush();
}

void Launcher::process(Task& task, uint64_t position) {
  if (task.stamp) [[unlikely]]
    return process_stamped(task, position);
  perform(task, position);
  retire(task, position);
}

// The same with all that is noted of some tasks, and while tracing of each.
void Launcher::process_stamped(Task& task, uint64_t position) {
  const uint64_t begun = ticks();
  const Sample sample = sample_of(task, begun);
  note_depth(position);
  StreamProfile* const profiled = drops_tasks() ? nullptr : stream_.profile();
  if (profiled) [[unlikely]]
    profiled->starts(position);
  perform(task, position);
  if (profiled) [[unlikely]]
    profile(*profiled, task, begun);
  trace(task, position, begun);
  retire(task, position);
  // While tracing every task has a stamp; the statistics take their share.
  if (is_sampled(position)) count(position, sample);
}

Launcher::Sample Launcher::sample_of(const Task& task, uint64_t begun) const {
  return {task.stamp, begun, task.marks.launch_ticks, name_of(task)};
}

void Launcher::note_depth(uint64_t position) {
  if (is_sampled(position, kDepthPeriod))
    stream_.block_->depth.add(stream_.tail() - position);
}

// Inlined: calling it would cost a tenth of what the launcher does for a task.
[[gnu::always_inline]] inline void Launcher::perform(Task& task,
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

void Launcher::failed(int code, Task& task, uint64_t position,
                      const npu_failure& failure) {
  StreamBlock& block = *stream_.block_;
  bump(block.failed);
  block.begin(position, name_of(task), task.site | RecentTask::kFailed);
  stream_.fail(code, task, position, failure.text);
}

// Of a stream that has failed.
void Launcher::drop(Task& task, uint64_t position) {
  StreamBlock& block = *stream_.block_;
  bump(block.dropped);
  block.begin(position, name_of(task), task.site | RecentTask::kDropped);
  if (task.marks.kind == TaskKind::kTimestamp)
    reinterpret_cast<TimeCell*>(task.words()[0])->release();
  else if (task.marks.kind == TaskKind::kProgram)
    reinterpret_cast<Program*>(task.words()[0])->dropped(stream_, task.words());
}

// What is counted of a sampled task, when it is done.
void Launcher::count(uint64_t position, const Sample& sample) {
  StreamBlock& block = *stream_.block_;
  const uint64_t end = ticks(), now = clock_.ns(end);
  const auto ns = [this](uint64_t ticks) {
    return uint64_t(double(ticks) * ns_per_tick_);
  };
  const uint64_t queued = ns(ticks_between(sample.stamp, sample.begun));
  const uint64_t ran = ns(ticks_between(sample.begun, end));
  const uint64_t latency = queued + ran;
  block.launch_ns.add(ns(sample.launch_ticks));
  block.queued_ns.add(queued);
  block.latency_ns.add(latency);
  block.latency_exemplars.note(position, latency, now);
  block.queued_exemplars.note(position, queued, now);
  block.run_ns[int(work_of(sample.name))].add(ran);
  count_name(sample.name, ran);
  // Relaxed: statistics order nothing.
  block.last_retired_ns.store(now, std::memory_order_relaxed);
  if (seat_) {
    seat_->look(now);
    make_room(callers_.look(now, stream_.tail(),
                            stream_.retired_.wanted() > position));
  }
  obey_control();
}

void Launcher::make_room(bool needed) {
  if (needed == made_room_) return;
  made_room_ = needed;
  if (needed) {
    ask_for_openmp_crowd();
  } else {
    take_back_openmp_crowd();
  }
}

// Before the task's slot is given back. Also notices that tracing begins or
// ends: this is reached once per sampled task when it is off.
void Launcher::trace(Task& task, uint64_t position, uint64_t started) {
  const uint32_t gate = stream_.gate_.load(std::memory_order_relaxed);
  const bool wanted = trace_wanted();
  if (!(gate & Stream::kTraced)) [[likely]] {
    if (wanted) [[unlikely]]
      stream_.set_traced(true);
    return;
  }
  if (!wanted) return stream_.set_traced(false);
  TraceRecord record{};
  record.position = position;
  record.submitted = task.stamp;
  record.started = started;
  record.ended = ticks();
  record.depth = uint32_t(stream_.tail() - position);
  record.kind = uint8_t(task.marks.kind);
  record.name = trace_name(name_of(task));
  if (task.marks.kind == TaskKind::kWait) {
    const Stream& other = *reinterpret_cast<Stream*>(task.words()[0]);
    record.other_device = other.device();
    record.other_stream = other.id();
    record.other_number = task.words()[1];
  }
  if (gate & Stream::kFailed) {
    const auto error = stream_.error();
    record.outcome =
        uint8_t(error && error->task == position ? TraceOutcome::kFailed
                                                 : TraceOutcome::kDropped);
  }
  if (!add(*stream_.trace_, record))
    segment().process.trace_dropped.fetch_add(1, std::memory_order_relaxed);
}

// Waits and notes of the time are not work of the device.
void Launcher::profile(StreamProfile& profile, const Task& task,
                       uint64_t started) {
  if (task.kernel) profile.ran(task.kernel->name, started, ticks());
}

void Launcher::force_stop(Stream& stream) {
  stream.fail({NPU_ERROR, stream.device(), stream.id(),
               stream.retired().value(), "stop_device",
               "FORCE STOP: the device was stopped; restart_device() makes it "
               "take work again",
               call_site(), ""});
  stream.wake_launcher();  // it may wait for a device that does not answer
}

int Launcher::execute(Task& task, uint64_t position, npu_failure& failure) {
  if (task.marks.kind != TaskKind::kKernel) [[unlikely]]
    return execute_own(task, position, failure);
  stream_.block_->begin(position, task.kernel->name, task.site);
  return stream_.queue_.run(task.kernel, task.words(), failure);
}

// A task that is the engine's, not the driver's.
int Launcher::execute_own(Task& task, uint64_t position, npu_failure& failure) {
  StreamBlock& block = *stream_.block_;
  switch (task.marks.kind) {
    case TaskKind::kWait: {
      block.begin(position, kWaitName, task.site);
      Stream& other = *reinterpret_cast<Stream*>(task.words()[0]);
      const uint64_t number = task.words()[1];
      hold(other, number);
      // Our later tasks would read what the failed one was to write.
      const auto error = other.error();
      if (!error || error->task >= number) return NPU_OK;
      snprintf(failure.text, sizeof failure.text,
               "waited for another stream which has failed: %s",
               error->message().c_str());
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
}

void Launcher::hold(Stream& other, uint64_t number) {
  if (other.retired().reached(number)) return;
  if (stream_.mode_ == StreamMode::kQueued) stream_.ring_.flush();
  StreamBlock& block = *stream_.block_;
  block.held_until.store(number, std::memory_order_relaxed);
  block.held_by.store(
      1 + uint64_t(other.id()) + (uint64_t(other.device()) << 32),
      std::memory_order_relaxed);
  // Relaxed: what it runs now, or has just run.
  const RecentTask& running =
      other.block_->recent[other.retired().value() % kRecentTasks];
  const auto* name = reinterpret_cast<const char*>(
      running.name.load(std::memory_order_relaxed));
  RunningTime& held =
      block.held[int(is_copy(name) ? Hold::kCopy : Hold::kEvent)];
  held.start(now_ns());
  if (urgent_) urgent_ends(stream_.device_);
  if (!other.retired().spin(number, kHoldSpinUs * ticks_per_us_)) {
    while (!other.retired().sleep(number, 0)) {
    }
  }
  if (urgent_) urgent_begins(stream_.device_);
  held.stop(now_ns());
  block.held_by.store(0, std::memory_order_relaxed);
}

// False: time to end.
bool Launcher::wait_for_work() {
  if (urgent_) urgent_ends(stream_.device_);
  const bool found = sleep_until_work();
  if (urgent_ && found) urgent_begins(stream_.device_);
  return found;
}

// What the launcher looks at while it spins.
struct Launcher::Idle {
  Launcher& launcher;

  uint64_t ticks() const { return npu::ticks(); }
  void pause() const { npu::pause(); }
  bool work() const { return launcher.stream_.ring_.front(); }
  // An urgent stream is one that was made for haste.
  bool hurried() const {
    return launcher.urgent_ || IdleSpin::hurried(wanted(), next());
  }
  uint64_t rest_ticks() const {
    return uint64_t(double(IdleSpin::rest_ns(wanted(), next())) /
                    launcher.ns_per_tick_);
  }

 private:
  uint64_t wanted() const { return launcher.stream_.retired_.wanted(); }
  uint64_t next() const { return launcher.stream_.ring_.front_position(); }
};

bool Launcher::sleep_until_work() {
  Ring<Task>& ring = stream_.ring_;
  StreamBlock& block = *stream_.block_;
  const uint64_t start = ticks();
  const auto ns = [this](uint64_t ticks) {
    return uint64_t(double(ticks) * ns_per_tick_);
  };
  Idle idle{*this};
  if (uint64_t gap; idle_.look(idle, gap)) {
    bump(block.spins);
    bump(block.starved_ns, ns(gap));
    block.idle.add(ns(gap));
    return true;
  }
  make_room(false);
  const uint64_t start_ns = now_ns() - ns(ticks_between(start, ticks()));
  block.idle.start(start_ns);
  while (!ring.front()) {
    // Not before what is claimed has been published and run.
    const auto claimed = [&] {
      return ring.front_position() != stream_.tail();
    };
    if (ends() && !claimed() && stream_.parking_.leave(claimed)) {
      block.idle.stop(now_ns());
      return false;
    }
    park();
  }
  const uint64_t end_ns = now_ns();
  block.idle.stop(end_ns);
  block.woken_ns.store(end_ns, std::memory_order_relaxed);
  bump(block.starved_ns, std::min(end_ns - start_ns, kStarvedNs));
  idle_.slept(ticks_between(start, ticks()));
  return true;
}

// Acquire: pairs with the release in Stream::stop().
bool Launcher::ends() const {
  return stream_.stopping_.load(std::memory_order_acquire) > number_;
}

void Launcher::park() {
  stream_.parking_.park([this] {
    if (stream_.ring_.front() || ends()) return true;
    bump(stream_.block_->parks);
    return false;
  });
}

}  // namespace npu
