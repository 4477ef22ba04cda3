#include "csrc/taskqueue/launcher.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/driver/registry.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/control.h"
#include "csrc/taskqueue/core_share.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait_policy.h"
#include "csrc/taskqueue/profile.h"
#include "csrc/taskqueue/program.h"
#include "csrc/taskqueue/trace.h"
#include "csrc/taskqueue/urgency.h"
#include "csrc/taskqueue/work_names.h"

namespace npu {
namespace {

constexpr uint64_t kMinSpinUs = 2, kMaxSpinUs = 60, kPreemptedUs = 200;
constexpr int kSkipAfterPreemption = 32;
// A wake-up costs the caller some 20 us. A training step has pauses longer than
// kMaxSpinUs, where Python goes from backward() to the optimizer.
constexpr uint64_t kPatientSpinUs = 250;
constexpr int kMostPatience = 8;
constexpr uint64_t kStarvedNs = 1'000'000;

const char* name_of(const Task& task) {
  if (task.kernel) return task.kernel->name;
  return task.kind == TaskKind::kTimestamp ? kRecordName : kWaitName;
}

}  // namespace

Launcher::Launcher(Stream& stream)
    : stream_(stream),
      driver_(driver()),
      urgent_(stream.priority_ < 0),
      ns_per_tick_(ns_per_tick()),
      ticks_per_us_(uint64_t(1000 / ns_per_tick())),
      mean_gap_(kMaxSpinUs * ticks_per_us_ / 4) {}

void Launcher::run() {
  Ring<Task>& ring = stream_.ring_;
  StreamBlock& block = *stream_.block_;
  launch_on_this_thread(stream_);
  Seat seat;
  seat_ = &seat;
  block.thread.store(uint64_t(gettid()), std::memory_order_relaxed);
  block.alive.start(now_ns());
  NoHostWaits it_is_waited_for;
  if (urgent_) urgent_begins(stream_.device_);
  for (;;) {
    if (Task* task = ring.front()) {
      if (urgent_need_all(stream_.device_) && !urgent_) [[unlikely]] {
        ring.flush();
        give_way(stream_.device_);
      }
      process(*task, ring.front_position());
    } else {
      ring.flush();
      if (!wait_for_work()) break;
    }
  }
  seat_ = nullptr;
  block.alive.stop(now_ns());
  block.thread.store(0, std::memory_order_relaxed);
}

bool Launcher::ready() const {
  Task* task = stream_.ring_.front();
  if (!task) return false;
  if (task->kind != TaskKind::kWait) return true;
  const uint64_t* words = task->words();
  return reinterpret_cast<Stream*>(words[0])->retired().reached(words[1]);
}

bool Launcher::step() {
  if (!ready()) return false;
  process(*stream_.ring_.front(), stream_.ring_.front_position());
  stream_.ring_.flush();
  return true;
}

void Launcher::process(Task& task, uint64_t position) {
  StreamBlock& block = *stream_.block_;
  const uint64_t stamp = task.stamp;
  uint64_t begun = 0;
  if (stamp) [[unlikely]] {
    begun = ticks();
    // While tracing every task has a stamp; the statistics take their share.
    if (position % kSamplePeriod == 0) {
      block.queued_ns.add(uint64_t(double(begun - stamp) * ns_per_tick_));
      block.depth.add(stream_.tail() - position);
    }
  }
  // Relaxed: this thread is the one that sets kFailed (or force_stop(), for
  // which the next task is early enough), and clear_error() only resets it
  // while nothing is queued.
  if (stream_.gate_.load(std::memory_order_relaxed) & Stream::kFailed)
      [[unlikely]] {
    bump(block.dropped);
    block.begin(position, name_of(task), task.site | RecentTask::kDropped);
    if (task.kind == TaskKind::kTimestamp)
      reinterpret_cast<TimeCell*>(task.words()[0])->release();
    else if (task.kind == TaskKind::kProgram)
      reinterpret_cast<Program*>(task.words()[0])
          ->dropped(stream_, task.words());
  } else {
    npu_failure failure;
    failure.text[0] = 0;
    StreamProfile* const profiled = stamp ? stream_.profile() : nullptr;
    if (profiled) [[unlikely]]
      profiled->starts(position);
    const int code = execute(task, position, failure);
    if (profiled) [[unlikely]]
      profile(*profiled, task, begun);
    if (code != NPU_OK) [[unlikely]] {
      bump(block.failed);
      block.begin(position, name_of(task), task.site | RecentTask::kFailed);
      stream_.fail(code, task, position, failure.text);
    }
  }
  // Before the slot is given back.
  const char* const name = stamp ? name_of(task) : nullptr;
  if (stamp) [[unlikely]]
    trace(task, position, begun);
  if (task.spilled) [[unlikely]]
    stream_.arena_.give(task.words());
  stream_.ring_.pop();
  // Before the advance, so that whoever has waited for it reads this number.
  block.retired.store(position + 1, std::memory_order_relaxed);
  const bool awaited = stream_.retired_.advance_to(position + 1);
  if (awaited) [[unlikely]]
    stream_.waiters_.retired(stream_, position + 1);
  if (stamp && position % kSamplePeriod == 0) [[unlikely]]
    sampled(position, stamp, begun, name);
}

// What is counted of every 16th task, when it is done.
void Launcher::sampled(uint64_t position, uint64_t stamp, uint64_t begun,
                       const char* name) {
  StreamBlock& block = *stream_.block_;
  const uint64_t end = ticks(), now = now_ns();
  const uint64_t latency = uint64_t(double(end - stamp) * ns_per_tick_);
  const uint64_t ran = uint64_t(double(end - begun) * ns_per_tick_);
  const uint64_t queued = uint64_t(double(begun - stamp) * ns_per_tick_);
  block.latency_ns.add(latency);
  block.latency_exemplars.note(position, latency, now);
  block.queued_exemplars.note(position, queued, now);
  block.run_ns[int(work_of(name))].add(ran);
  count_name(name, ran);
  // Relaxed: statistics order nothing.
  block.last_retired_ns.store(now, std::memory_order_relaxed);
  if (seat_) seat_->look(now);
  obey_control();
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
  record.kind = uint8_t(task.kind);
  record.name = trace_name(name_of(task));
  if (task.kind == TaskKind::kWait) {
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
}

int Launcher::execute(Task& task, uint64_t position, npu_failure& failure) {
  StreamBlock& block = *stream_.block_;
  switch (task.kind) {
    case TaskKind::kKernel:
      block.begin(position, task.kernel->name, task.site);
      return driver_.launch(stream_.queue_, task.kernel, task.words(),
                            &failure);
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
  if (!other.retired().spin(number, kMaxSpinUs * ticks_per_us_)) {
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

// Spins for about four times the usual gap, or longer while that has been worth
// it, then sleeps.
bool Launcher::sleep_until_work() {
  Ring<Task>& ring = stream_.ring_;
  StreamBlock& block = *stream_.block_;
  const uint64_t start = ticks();
  const uint64_t most = kMaxSpinUs * ticks_per_us_;
  const uint64_t least = kMinSpinUs * ticks_per_us_;
  static const bool alone = usable_cores() == 1;
  uint64_t budget =
      mean_gap_ > most ? least : std::clamp(4 * mean_gap_, least, most);
  const uint64_t short_spin = budget;
  const uint64_t patient_spin = kPatientSpinUs * ticks_per_us_;
  if (patience_ > 0) budget = patient_spin;
  if (alone) budget = 0;
  if (skip_spins_ > 0) {
    --skip_spins_;
    budget = 0;
  }
  uint64_t last = start;
  while (last - start < budget) {
    for (int i = 0; i < 16; ++i) {
      if (ring.front()) {
        const uint64_t gap = ticks() - start;
        mean_gap_ = (7 * mean_gap_ + gap) / 8;
        if (gap > short_spin)
          patience_ = std::min(patience_ + 1, kMostPatience);
        const uint64_t ns = uint64_t(double(gap) * ns_per_tick_);
        bump(block.spins);
        bump(block.starved_ns, ns);
        block.idle.add(ns);
        return true;
      }
      pause();
    }
    const uint64_t now = ticks();
    if (now - last > kPreemptedUs * ticks_per_us_)
      skip_spins_ = kSkipAfterPreemption;
    last = now;
  }
  const uint64_t start_ns =
      now_ns() - uint64_t(double(ticks() - start) * ns_per_tick_);
  block.idle.start(start_ns);
  while (!ring.front()) {
    // Not before what is claimed has been published and run.
    if (stream_.stopping_.load(std::memory_order_acquire) &&
        ring.front_position() == stream_.tail()) {
      block.idle.stop(now_ns());
      return false;
    }
    park();
  }
  const uint64_t end_ns = now_ns();
  block.idle.stop(end_ns);
  block.woken_ns.store(end_ns, std::memory_order_relaxed);
  bump(block.starved_ns, std::min(end_ns - start_ns, kStarvedNs));
  const uint64_t gap = ticks() - start;
  mean_gap_ = (7 * mean_gap_ + std::min(gap, 8 * most)) / 8;
  // In vain costs the other core more than in time saves.
  patience_ = gap < patient_spin ? std::min(patience_ + 1, kMostPatience)
                                 : std::max(patience_ - 2, 0);
  return true;
}

void Launcher::park() {
  stream_.parking_.park([this] {
    if (stream_.ring_.front() ||
        stream_.stopping_.load(std::memory_order_acquire))
      return true;
    bump(stream_.block_->parks);
    return false;
  });
}

}  // namespace npu
