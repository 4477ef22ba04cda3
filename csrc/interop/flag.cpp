#include "csrc/interop/flag.h"

#include <stdio.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/switches.h"
#include "csrc/observe/observer.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task_wait.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

// The task that sets a flag next, as far as this process knows.
struct Setter {
  Stream* stream;
  uint64_t number;
};
struct Setters {
  std::mutex mutex;
  std::map<const Flag*, Setter> by_flag;
};

// Never destroyed: launchers may wait at exit.
Setters& setters() {
  static Setters* const instance = new Setters;
  return *instance;
}

// Publishes, from look() until its destruction, that this thread's stream
// waits, and for whom. A wait may begin before anybody has queued the task that
// sets the flag, so look() is called again and again. An inline stream's task
// waits on a thread of the host.
class HeldByFlag {
 public:
  HeldByFlag(const Flag& flag, int device) : flag_(flag), device_(device) {}
  HeldByFlag(const HeldByFlag&) = delete;
  ~HeldByFlag() {
    if (!looked_) return;
    held().stop(now_ns());
    publish(0, 0);
  }

  void look() {
    if (!stream_) {
      if (!host_) host_.emplace(device_);
      return;
    }
    if (!looked_) held().start(now_ns());
    looked_ = true;
    std::lock_guard lock(setters().mutex);
    const auto at = setters().by_flag.find(&flag_);
    if (at == setters().by_flag.end()) return;
    const auto& [by, number] = at->second;
    if (by->retired().reached(number)) return publish(0, 0);
    publish(1 + uint64_t(by->id()) + (uint64_t(by->device()) << 32), number);
  }

 private:
  // Relaxed: statistics order nothing.
  void publish(uint64_t by, uint64_t number) {
    StreamBlock& block = stream_->block();
    block.held_until.store(number, std::memory_order_relaxed);
    block.held_by.store(by, std::memory_order_relaxed);
  }

  RunningTime& held() { return stream_->block().held[int(Hold::kEvent)]; }

  const Flag& flag_;
  const int device_;
  Stream* const stream_ = stream_of_this_thread();
  std::optional<HostWaitForFlag> host_;
  bool looked_ = false;
};

Flag& flag_of(const uint64_t* words) {
  return *reinterpret_cast<Flag*>(words[0]);
}

int run_set(const npu_kernel*, const uint64_t* words, npu_failure*) {
  flag_of(words).set(uint32_t(words[1]));
  return NPU_OK;
}

// Called while the stream has not retired the task.
void drop_set(const Stream& stream, const uint64_t* words) {
  flag_of(words).drop(uint32_t(words[2]),
                      {uint32_t(getpid()), stream.device(), stream.id(),
                       stream.retired().value()});
}

int fail_as_dropped(const uint64_t* words, const char* event,
                    npu_failure& failure) try {
  const StreamError error = dropped_error(flag_of(words), event);
  snprintf(failure.text, sizeof failure.text, "%s", error.text.c_str());
  return error.code;
} catch (const std::bad_alloc&) {  // the launcher goes on
  snprintf(failure.text, sizeof failure.text, "out of host memory");
  return NPU_OUT_OF_MEMORY;
}

// Runs a task that waits for a flag. `came(seen)` says whether the flag says
// what the task waits for, and else what it says. `other_processes`: whether
// they may set it; otherwise it never comes where this process has no other
// task to run.
template <typename Came>
int run_wait(const uint64_t* words, npu_failure& failure, const char* event,
             bool other_processes, Came came) {
  const int device = int(words[1]);
  HeldByFlag held(flag_of(words), device);
  uint32_t seen = 0;
  bool stopped = false, polled = false;
  const auto given_up = [&] {
    if ((stopped = device_stopped(device))) return true;
    if (!observed(Observer::kRuns)) return false;
    polled = tell_observers(&Observer::flag_polled);
    return !polled && !other_processes;
  };
  const auto sleep = [&] {
    if (std::exchange(polled, false)) return;
    held.look();
    flag_of(words).sleep_while(seen);
  };
  if (spin_then_sleep(0, [&] { return came(seen); }, given_up, sleep))
    return NPU_OK;
  snprintf(failure.text, sizeof failure.text,
           stopped
               ? "the wait for an %s event was ended by a FORCE STOP of the "
                 "device"
               : "this wait for an %s event would never end: nothing that can "
                 "run records the event; record() it before the host waits, on "
                 "a stream that does not wait for this one",
           event);
  return NPU_ERROR;
}

int run_take(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  uint32_t taken = kDown;
  const int code = run_wait(words, *failure, "external",
                            /*other_processes=*/false, [&](uint32_t& seen) {
                              const bool took = flag_of(words).take(seen);
                              if (took) taken = seen;
                              return took;
                            });
  if (code == NPU_OK && taken == kDropped)
    return fail_as_dropped(words, "external", *failure);
  return code;
}

int run_reach(const npu_kernel*, const uint64_t* words, npu_failure* failure) {
  const uint32_t number = uint32_t(words[2]);
  const int code = run_wait(
      words, *failure, "interprocess", /*other_processes=*/true,
      [&](uint32_t& seen) { return flag_of(words).reached(number, seen); });
  if (code == NPU_OK && flag_of(words).dropped(number))
    return fail_as_dropped(words, "interprocess", *failure);
  return code;
}

bool runs(const Stream& stream, const npu_kernel& kernel) {
  return stream.block().running(stream.retired().value()) == kernel.name;
}

bool runs_flag_wait(const Stream& stream) {
  return runs(stream, kTakeFlag) || runs(stream, kReachFlag);
}

}  // namespace

const KernelWithDrop kSetFlag{
    {run_set, "event record", nullptr, 0, NPU_KERNEL_ON_HOST | kHasDrop},
    drop_set};
const npu_kernel kTakeFlag{run_take, "external event wait", nullptr, 0,
                           NPU_KERNEL_ON_HOST};
const npu_kernel kReachFlag{run_reach, "interprocess event wait", nullptr, 0,
                            NPU_KERNEL_ON_HOST};

bool waits_for_flag(const Task& task) {
  const bool takes = task.kernel == &kTakeFlag;
  if (!takes && task.kernel != &kReachFlag) return false;
  const uint64_t* words = task.words();
  const Flag& flag = flag_of(words);
  uint32_t now;
  return takes ? flag.value() == kDown : !flag.reached(uint32_t(words[2]), now);
}

StreamError dropped_error(const Flag& flag, const char* event) {
  const DroppedSet by = flag.dropped_by();
  const bool here = by.process == uint32_t(getpid());
  StreamError error{};
  error.code = NPU_ERROR;
  error.device = by.device;
  error.stream = by.stream;
  error.task = by.task;
  error.op = kSetFlag.name;
  error.text =
      std::string("the record of this ") + event +
      " event was dropped, because " + stream_name(by.device, by.stream) +
      (here ? "" : " of process " + std::to_string(by.process)) + " had failed";
  if (!here) return error;
  // The stream may have been cleared since.
  for (const Stream* stream : all_streams()) {
    if (stream->device() != by.device || stream->id() != by.stream) continue;
    if (const auto first = stream->error()) {
      error.code = first->code;
      error.text += ": " + (first->cause ? *first->cause : *first).message();
    }
  }
  return error;
}

// Counts in the same counters as a wait for an event of a stream.
HostWaitForFlag::HostWaitForFlag(int device)
    : counted_([device] {
        constexpr int kReason = int(WaitReason::kEventSync);
        DeviceBlock& block = segment().devices[device];
        return CountedWait(block.waits[kReason], block.wait_ns[kReason],
                           block.waiting[kReason], block.waiting_from[kReason],
                           now_ns());
      }()) {}
HostWaitForFlag::~HostWaitForFlag() { counted_.end(now_ns()); }

void flag_will_be_set(const Flag& flag, Stream& stream, uint64_t number) {
  std::lock_guard lock(setters().mutex);
  setters().by_flag[&flag] = {&stream, number};
}

void flag_is_gone(const Flag& flag) {
  std::lock_guard lock(setters().mutex);
  setters().by_flag.erase(&flag);
}

const Stream* held_by_nobody(const Stream& stream) {
  constexpr int kMostHops = kMaxStreamBlocks;
  const Stream* at = &stream;
  for (int hop = 0; hop < kMostHops; ++hop) {
    if (at->idle()) return nullptr;
    const StreamBlock& block = at->block();
    const RunningTime& held = block.held[int(Hold::kEvent)];
    if (!(held.word.load(std::memory_order_relaxed) & RunningTime::kRunning))
      return nullptr;
    const uint64_t by = block.held_by.load(std::memory_order_relaxed);
    if (!by) return runs_flag_wait(*at) ? at : nullptr;
    const Stream* const next =
        find_stream(int((by - 1) >> 32), int64_t(uint32_t(by - 1)));
    if (!next || next->retired().reached(
                     block.held_until.load(std::memory_order_relaxed)))
      return nullptr;
    at = next;
  }
  return at;
}

bool waits_for_processes(const Stream& stream) {
  return runs(stream, kReachFlag);
}

}  // namespace npu
