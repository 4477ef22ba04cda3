#include "csrc/engine/switches.h"

#include <atomic>
#include <mutex>

#include "csrc/base/clock.h"
#include "csrc/base/per_thread.h"
#include "csrc/engine/engine.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

int blocking_threads_ = 0;  // guarded by hold_streams()

// Takes its thread out of the count when the thread ends.
struct EndOfThread {
  ~EndOfThread() { set_thread_launch_blocking(false); }
};

// Whether streams have to ask launch_blocks() at each launch.
bool may_block() {
  return process_blocks().load(std::memory_order_relaxed) ||
         blocking_threads_ > 0;
}

void tell_all() {
  for (Stream* stream : all_streams()) tell_blocking(*stream);
}

// Relaxed everywhere: tasks poll these, and the stream carries the error.
std::atomic<bool> stopped_[kMaxDeviceBlocks];
// When stop_waiting_tasks() was called; 0: not yet.
std::atomic<uint64_t> exit_ns_{0};
// How long queued work still has to end the waits in the proper way.
constexpr uint64_t kGraceNs = 2'000'000'000;

}  // namespace

// Work for communication ends when other ranks have called, too. Whoever
// launched it may have to launch more before they do, so only its waits block.
void tell_blocking(Stream& stream) {
  const bool communicates =
      StreamPool(stream.id() / kStreamsPerPool) >= StreamPool::kComm;
  stream.set_blocking(may_block() && !communicates);
}

void set_launch_blocking(bool blocking) {
  const auto held = hold_streams();
  process_blocks().store(blocking, std::memory_order_relaxed);
  tell_all();
}

bool set_thread_launch_blocking(bool blocking) {
  if (thread_blocks() == blocking) return blocking;
  if (blocking) PerThread<EndOfThread>::get();
  thread_blocks() = blocking;
  const auto held = hold_streams();
  blocking_threads_ += blocking ? 1 : -1;
  tell_all();
  return !blocking;
}

void obey_control() {
  static Counter& asked = segment().control.launch_blocking;
  static std::atomic<uint64_t> obeyed{0};
  // Relaxed throughout: the word alone says what is wanted, and a launch that
  // races with a change may go either way.
  const uint64_t wanted = asked.load(std::memory_order_relaxed);
  if (wanted == obeyed.load(std::memory_order_relaxed)) [[likely]]
    return;
  // Whoever holds the streams may be waiting for this thread to end. A later
  // call will do it.
  const auto held = try_hold_streams();
  if (!held) return;
  if (wanted) {
    process_blocks().store(wanted == 2, std::memory_order_relaxed);
    tell_all();
  }
  obeyed.store(wanted, std::memory_order_relaxed);
}

void stop_device(int device) {
  stopped_[device].store(true, std::memory_order_relaxed);
  for (Stream* stream : streams(device)) stream->force_stop();
}

void restart_device(int device) {
  clear_errors(device);
  stopped_[device].store(false, std::memory_order_relaxed);
}

bool device_stopped(int device) {
  if (stopped_[device].load(std::memory_order_relaxed)) return true;
  const uint64_t exit_ns = exit_ns_.load(std::memory_order_relaxed);
  return exit_ns && now_ns() > exit_ns + kGraceNs;
}

void stop_waiting_tasks() {
  exit_ns_.store(now_ns(), std::memory_order_relaxed);
}

}  // namespace npu
