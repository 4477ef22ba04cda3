#include "csrc/taskqueue/launcher.h"

#include <sched.h>

#include <stdio.h>

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/driver/registry.h"
#include "csrc/taskqueue/event.h"

namespace npu {
namespace {

constexpr uint64_t kMinSpinUs = 2, kMaxSpinUs = 60, kPreemptedUs = 20;
constexpr int kSkipAfterPreemption = 32;

bool single_cpu() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 &&
         CPU_COUNT(&cpus) == 1;
}

}  // namespace

Launcher::Launcher(Stream& stream)
    : stream_(stream),
      driver_(driver()),
      ns_per_tick_(ns_per_tick()),
      ticks_per_us_(uint64_t(1000 / ns_per_tick())),
      mean_gap_(kMaxSpinUs * ticks_per_us_ / 4) {}

void Launcher::run() {
  Ring<Task>& ring = stream_.ring_;
  for (;;) {
    if (Task* task = ring.front()) {
      process(*task, ring.front_position());
    } else {
      ring.flush();
      if (!wait_for_work()) return;
    }
  }
}

void Launcher::process(Task& task, uint64_t position) {
  StreamBlock& block = *stream_.block_;
  const uint64_t stamp = task.stamp;
  if (stamp) [[unlikely]] {
    const uint64_t wait = ticks() - stamp;
    block.queued_ns.add(uint64_t(double(wait) * ns_per_tick_));
    block.depth.add(stream_.tail() - position);
  }
  // Relaxed: this thread is the one that sets kFailed (or force_stop(), for
  // which the next task is early enough), and clear_error() only resets it
  // while nothing is queued.
  if (stream_.gate_.load(std::memory_order_relaxed) & Stream::kFailed)
      [[unlikely]] {
    bump(block.dropped);
    if (task.kind == TaskKind::kTimestamp)
      reinterpret_cast<TimeCell*>(task.words()[0])->release();
  } else {
    npu_failure failure;
    failure.text[0] = 0;
    const int code = execute(task, failure);
    if (code != NPU_OK) [[unlikely]] {
      bump(block.failed);
      stream_.fail(code, task.kernel ? task.kernel->name : "wait", position,
                   failure.text);
    }
  }
  if (task.spilled) [[unlikely]]
    stream_.arena_.give(task.words());
  stream_.ring_.pop();
  stream_.retired_.advance_to(position + 1);
  block.retired.store(position + 1, std::memory_order_relaxed);
  if (stamp) [[unlikely]] {
    block.latency_ns.add(uint64_t(double(ticks() - stamp) * ns_per_tick_));
    block.last_retired_ns.store(now_ns(), std::memory_order_relaxed);
  }
}

void Launcher::force_stop(Stream& stream) {
  stream.fail(NPU_ERROR, "stop_device", stream.retired().value(),
              "FORCE STOP: the device was stopped; restart_device() makes it "
              "take work again");
}

int Launcher::execute(Task& task, npu_failure& failure) {
  switch (task.kind) {
    case TaskKind::kKernel:
      return driver_.launch(stream_.queue_, task.kernel, task.words(),
                            &failure);
    case TaskKind::kWait: {
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
      reinterpret_cast<TimeCell*>(task.words()[0])->set(now_ns());
      return NPU_OK;
  }
  __builtin_unreachable();
}

void Launcher::hold(Stream& other, uint64_t number) {
  if (other.retired().reached(number)) return;
  if (stream_.mode_ == StreamMode::kQueued) stream_.ring_.flush();
  if (other.retired().spin(number, kMaxSpinUs * ticks_per_us_)) return;
  while (!other.retired().sleep(number, 0)) {
  }
}

// Spins for about four times the usual gap, then sleeps. False: time to end.
bool Launcher::wait_for_work() {
  Ring<Task>& ring = stream_.ring_;
  const uint64_t start = ticks();
  const uint64_t most = kMaxSpinUs * ticks_per_us_;
  const uint64_t least = kMinSpinUs * ticks_per_us_;
  static const bool alone = single_cpu();
  uint64_t budget =
      mean_gap_ > most ? least : std::clamp(4 * mean_gap_, least, most);
  if (alone) budget = 0;
  if (skip_spins_ > 0) {
    --skip_spins_;
    budget = 0;
  }
  uint64_t last = start;
  while (last - start < budget) {
    for (int i = 0; i < 16; ++i) {
      if (ring.front()) {
        mean_gap_ = (7 * mean_gap_ + (ticks() - start)) / 8;
        return true;
      }
      pause();
    }
    const uint64_t now = ticks();
    if (now - last > kPreemptedUs * ticks_per_us_)
      skip_spins_ = kSkipAfterPreemption;
    last = now;
  }
  while (!ring.front()) {
    // Not before what is claimed has been published and run.
    if (stream_.stopping_.load(std::memory_order_acquire) &&
        ring.front_position() == stream_.tail())
      return false;
    park();
  }
  mean_gap_ = (7 * mean_gap_ + std::min(ticks() - start, 8 * most)) / 8;
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
