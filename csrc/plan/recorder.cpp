#include "csrc/plan/recorder.h"

#include <algorithm>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/driver/driver.h"
#include "csrc/driver/emulated/work.h"
#include "csrc/observe/work_names.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu::plan {
namespace {

constexpr uint32_t kUnknown = UINT32_MAX;

uint64_t cost_of_reading() {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t from = thread_cpu_ns();
    least = std::min(least, thread_cpu_ns() - from);
  }
  return least;
}

void append(std::string& key, uint64_t value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

struct Recorder::Thread {
  const Recorder* of = nullptr;
  uint32_t number = kUnknown;
  uint64_t last = 0;  // its clock at the end of its last entry
  // Where it is in a wait: its clock at the beginning, and why it waits.
  bool waits = false;
  uint64_t wait_from = 0;
  WaitReason reason{};
  // What its next task is, where that task does not say it.
  uint32_t next = kUnknown;
};

Recorder::Thread& Recorder::here() {
  thread_local Thread thread;
  if (thread.of != this) {
    thread = {};
    thread.of = this;
  }
  return thread;
}

Recorder::Recorder(const Setting& setting) : read_ns_(cost_of_reading()) {
  here().last = thread_cpu_ns();
  clock_.emplace(recording_.streams, recording_.operations, setting);
}

// A launcher's thread has spun meanwhile, which is no work of the program.
uint64_t Recorder::host_ns(const Thread& thread, uint64_t now) const {
  const uint64_t counted = thread.last + read_ns_;
  if (!thread.last || now < counted || stream_of_this_thread()) return 0;
  return now - counted;
}

template <typename Fill>
void Recorder::add(Thread& thread, uint64_t host_ns, Fill fill) {
  {
    std::lock_guard lock(mutex_);
    Entry entry{};
    fill(entry);
    if (recording_.entries.size() < kMost) {
      if (thread.number == kUnknown) thread.number = threads_++;
      entry.thread = thread.number;
      entry.host_ns = host_ns;
      recording_.entries.push_back(entry);
      if (clock_) clock_->feed(entry);
    }
  }
  thread.last = thread_cpu_ns();
}

Recorder::Known& Recorder::known(Stream& stream, uint64_t position) {
  const auto [at, added] = streams_.try_emplace(&stream);
  if (added) {
    at->second = {uint32_t(recording_.streams.size()), position, 0};
    recording_.streams.push_back(
        {stream.device(), stream.id(), stream.priority()});
  }
  return at->second;
}

bool Recorder::submitted(Stream& stream, uint64_t position, const Task& task) {
  Thread& thread = here();
  // If the thread has waited for room in the queue, that wait is over now: it
  // has no host_waited() of its own.
  thread.waits = false;
  add(thread, host_ns(thread, thread_cpu_ns()), [&](Entry& entry) {
    entry.site = task.site;
    if (task.marks.kind == TaskKind::kWait) {
      Stream& other = *reinterpret_cast<Stream*>(task.words()[0]);
      const uint64_t number = task.words()[1];
      const Known& waited = known(other, number);
      entry.act = Act::kStreamWait;
      entry.other = waited.index;
      entry.amount = waited.behind(number);
    } else {
      entry.act = Act::kLaunch;
      entry.what = operation_of(thread, task);
    }
    Known& mine = known(stream, position);
    entry.stream = mine.index;
    ++mine.number;
  });
  return false;
}

uint32_t Recorder::operation_of(Thread& thread, const Task& task) {
  if (const uint32_t next = std::exchange(thread.next, kUnknown);
      next != kUnknown)
    return next;
  if (task.marks.kind != TaskKind::kKernel) return index_of(kRecordName, {});
  const npu_kernel& k = *task.kernel;
  if (!(k.flags & NPU_KERNEL_ON_HOST)) return kernel(k, task.words());
  Operation none;
  none.name = k.name;
  return index_of("on host " + none.name, none);
}

uint32_t Recorder::index_of(std::string key, Operation operation) {
  const auto [at, added] = operations_.try_emplace(
      std::move(key), uint32_t(recording_.operations.size()));
  if (added) recording_.operations.push_back(std::move(operation));
  return at->second;
}

uint32_t Recorder::kernel(const npu_kernel& kernel, const uint64_t* words) {
  Operation operation;
  operation.type = OperationType::kWork;
  operation.name = kernel.name;
  operation.work = emulated_work(kernel, words);
  std::string key = kernel.name;
  append(key, uint64_t(operation.work.kind));
  append(key, operation.work.sleep_ns);
  append(key, uint64_t(operation.work.bytes));
  for (uint32_t i = 0; i < kernel.n_views; ++i) {
    const npu_view& view = kernel.views[i];
    const auto& sizes = operation.shapes.emplace_back(sizes_of(view, words));
    append(key, uint64_t(view.itemsize) << 32 | uint64_t(view.access) << 16 |
                    sizes.size());
    for (const int64_t n : sizes) append(key, uint64_t(n));
  }
  return index_of(std::move(key), std::move(operation));
}

// Replays of one capture are one operation. The task that follows is the
// replay.
void Recorder::replays(Stream&, const KernelCall* calls, size_t n,
                       Captured captured) {
  Thread& thread = here();
  const uint64_t begun = thread_cpu_ns();
  {
    std::lock_guard lock(mutex_);
    std::string key = "replay";
    append(key, captured.begun);
    append(key, n);
    if (const auto at = operations_.find(key); at != operations_.end()) {
      thread.next = at->second;
    } else {
      Operation replay;
      replay.type = OperationType::kReplay;
      replay.name = "graph replay";
      for (size_t i = 0; i < n; ++i)
        if (!(calls[i].kernel->flags & NPU_KERNEL_ON_HOST))
          replay.parts.push_back(kernel(*calls[i].kernel, calls[i].words));
      thread.next = index_of(std::move(key), std::move(replay));
    }
  }
  if (thread.last) thread.last += thread_cpu_ns() - begun;
}

void Recorder::collective(std::string kind, uint64_t bytes,
                          std::vector<int64_t> ranks) {
  std::lock_guard lock(mutex_);
  std::string key = "collective " + kind;
  append(key, bytes);
  for (const int64_t rank : ranks) append(key, uint64_t(rank));
  Operation operation;
  operation.type = OperationType::kCollective;
  operation.name = "hccl:" + kind;
  operation.work.bytes = double(bytes);
  operation.kind = std::move(kind);
  operation.ranks = std::move(ranks);
  here().next = index_of(std::move(key), std::move(operation));
}

void Recorder::host_waits(Stream&, uint64_t, WaitReason reason) {
  Thread& thread = here();
  thread.wait_from = thread_cpu_ns();
  thread.reason = reason;
  thread.waits = true;
}

// Without host_waits() before it, the host has asked and found the task done.
bool Recorder::host_waited(Stream& stream, uint64_t number) {
  Thread& thread = here();
  const bool waits = std::exchange(thread.waits, false);
  const auto ns = host_ns(thread, waits ? thread.wait_from : thread_cpu_ns());
  const uint32_t site = call_stack_id();  // may take the GIL: before the lock
  add(thread, ns, [&](Entry& entry) {
    const Known& other = known(stream, number);
    entry.act = Act::kHostWait;
    entry.stream = entry.other = other.index;
    entry.what = uint32_t(waits ? thread.reason : WaitReason::kEventSync);
    entry.site = site;
    entry.amount = other.behind(number);
  });
  return false;
}

void Recorder::note(Act act, uint64_t amount) {
  Thread& thread = here();
  add(thread, host_ns(thread, thread_cpu_ns()), [&](Entry& entry) {
    entry.act = act;
    entry.amount = amount;
  });
}

void Recorder::allocated(Stream& stream, const void*, size_t bytes) {
  const int device = stream.device();
  uint64_t in_use;
  {
    std::lock_guard lock(mutex_);
    Memory& memory = memory_[device];
    in_use = memory.bytes += bytes;
    if (in_use <= memory.most) return;
  }
  // Few allocations come here, and only these pay for their line. Finding it
  // may take the GIL, so the lock is released meanwhile.
  const uint32_t site = call_stack_id();
  std::lock_guard lock(mutex_);
  Memory& memory = memory_[device];
  if (in_use <= memory.most) return;  // another thread's is larger
  memory.most = in_use;
  auto& peaks = recording_.peaks;
  if (!peaks.empty() && peaks.back().device == device &&
      peaks.back().site == site) {
    peaks.back().bytes = memory.most;
  } else {
    peaks.push_back({device, memory.most, site});
  }
}

// What was there before the recording began may be the larger.
void Recorder::freed(Stream& stream, const void*, size_t bytes, FreedTo) {
  std::lock_guard lock(mutex_);
  uint64_t& all = memory_[stream.device()].bytes;
  all -= std::min(all, uint64_t(bytes));
}

uint64_t Recorder::now() {
  Thread& thread = here();
  const uint64_t cpu = thread_cpu_ns();
  // Its clock begins here, or it would stand still until its first launch.
  if (!thread.last) thread.last = cpu;
  const uint64_t since = host_ns(thread, cpu);
  std::lock_guard lock(mutex_);
  // No thread sees less than another one has seen.
  latest_ = std::max(latest_, clock_ ? clock_->now(since) : since);
  return latest_;
}

uint64_t Recorder::ended(Stream& stream, uint64_t number) {
  std::lock_guard lock(mutex_);
  const Known& mine = known(stream, number);
  const uint64_t counted = number > mine.begin ? number - mine.begin : 0;
  return clock_ ? clock_->end_of(mine.index, counted) : 0;
}

size_t Recorder::size() {
  std::lock_guard lock(mutex_);
  return recording_.entries.size();
}

Recording Recorder::take() {
  std::lock_guard lock(mutex_);
  clock_.reset();
  streams_.clear();
  operations_.clear();
  memory_.clear();
  return std::exchange(recording_, {});
}

}  // namespace npu::plan
