#include "csrc/engine/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "csrc/driver/driver.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/engine/switches.h"
#include "csrc/observe/observer.h"
#include "csrc/observe/trace.h"
#include "csrc/placement/core_share.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/this_thread.h"

namespace npu {
namespace {

static_assert(kMaxDevices == kMaxDeviceBlocks);
static_assert(kPools * kStreamsPerPool <= kMostStreamIds);

struct Device {
  std::array<std::atomic<Stream*>, kPools * kStreamsPerPool> streams{};
};

struct Engine {
  std::mutex mutex;  // the one that hold_streams() locks
  std::array<Device, kMaxDevices> devices;
};

std::atomic<bool> initialized_{false};
std::atomic<bool> forked_{false};

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// Never destroyed: launchers and late destructors outlive static destruction.
Engine& engine() {
  static Engine* const instance = [] {
    Engine* e = new Engine;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    atexit(shut_down);
    return e;
  }();
  return *instance;
}

void before_fork() { engine().mutex.lock(); }
void after_fork_in_parent() { engine().mutex.unlock(); }
void after_fork_in_child() {
  new (&engine().mutex) std::mutex;
  if (!initialized_.load(std::memory_order_relaxed)) return;
  forked_.store(true, std::memory_order_relaxed);
  detach_segment_after_fork();
  for (Device& device : engine().devices)
    for (auto& stream : device.streams)
      if (Stream* s = stream.load(std::memory_order_relaxed))
        s->abandon_after_fork();
}

thread_local std::array<Stream*, kMaxDevices> current_{};

Stream* make_stream(int device, int64_t id) {
  Engine& e = engine();
  std::lock_guard lock(e.mutex);
  auto& slot = e.devices[device].streams[id];
  if (Stream* made = slot.load(std::memory_order_relaxed)) return made;
  const auto pool = StreamPool(id >> 5);
  const auto mode = pool == StreamPool::kSyncLaunch ? StreamMode::kInline
                                                    : StreamMode::kQueued;
  const int priority = pool == StreamPool::kHigh ? -1 : 0;
  auto stream = std::make_unique<Stream>(device, id, priority, mode);
  tell_blocking(*stream);
  open_trace_file();
  if (trace_wanted()) stream->set_traced(true);
  stream->look_for_observers();
  DeviceBlock& block = segment().devices[device];
  block.memory_total.store(driver().memory_total(device),
                           std::memory_order_relaxed);
  initialized_.store(true, std::memory_order_release);
  slot.store(stream.get(), std::memory_order_release);
  return stream.release();
}

}  // namespace

int device_count() { return driver().device_count(); }
bool initialized() { return initialized_.load(std::memory_order_acquire); }
bool in_bad_fork() { return forked_.load(std::memory_order_relaxed); }

Stream* find_stream(int device, int64_t id) {
  if (id < 0 || id >= kPools * kStreamsPerPool) return nullptr;
  if ((id & 31) >= pool_size(StreamPool(id >> 5))) return nullptr;
  Stream* made =
      engine().devices[device].streams[id].load(std::memory_order_acquire);
  return made ? made : make_stream(device, id);
}

[[gnu::hot]] Stream& current_stream(int device) {
  Stream*& stream = current_[device];
  if (!stream) [[unlikely]]
    stream = find_stream(device, 0);
  return *stream;
}

void set_current_stream(Stream& stream) { current_[stream.device()] = &stream; }

std::vector<Stream*> streams(int device) {
  std::vector<Stream*> found;
  for (auto& slot : engine().devices[device].streams)
    if (Stream* s = slot.load(std::memory_order_acquire)) found.push_back(s);
  return found;
}

std::vector<Stream*> all_streams() {
  std::vector<Stream*> found;
  if (!initialized()) return found;
  for (int device = 0; device < device_count(); ++device)
    for (Stream* s : streams(device)) found.push_back(s);
  return found;
}

void synchronize_device(int device, WaitReason reason) {
  for (auto& slot : engine().devices[device].streams)
    if (Stream* s = slot.load(std::memory_order_acquire))
      host_wait(*s, s->tail(), reason);
}

// No stream is cleared before all have come to their end: one that waits for a
// failed stream looks for the error when its wait is over.
void clear_errors(int device) {
  synchronize_device(device, WaitReason::kStreamSync);
  for (Stream* stream : streams(device)) stream->clear_error();
}

std::unique_lock<std::mutex> hold_streams() {
  return std::unique_lock(engine().mutex);
}

std::unique_lock<std::mutex> try_hold_streams() {
  return std::unique_lock(engine().mutex, std::try_to_lock);
}

void install_observer(Observer& observer, bool installed) {
  const auto held = hold_streams();
  list_observer(observer, installed);
  for (Stream* s : all_streams()) s->look_for_observers();
}

void shut_down() {
  if (!initialized() || in_bad_fork()) return;
  // Repeated as long as tasks submit to a stream that was stopped before.
  for (bool stopped = true; stopped;) {
    stopped = false;
    for (Stream* s : all_streams()) stopped |= s->stop();
  }
  for (Stream* s : all_streams())
    if (auto error = s->error())
      fprintf(stderr, "npu_dispatch: unreported at exit: %s\n",
              error->message().c_str());
  remove_segment();
  remove_trace_file();
}

}  // namespace npu
