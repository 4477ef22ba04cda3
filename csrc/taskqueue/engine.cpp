#include "csrc/taskqueue/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>

#include "csrc/base/env.h"
#include "csrc/driver/registry.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/control.h"
#include "csrc/taskqueue/observer.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/stream_pools.h"
#include "csrc/taskqueue/trace.h"

namespace npu {
namespace {

constexpr int kMaxDevices = kMaxDeviceBlocks;

struct Device {
  std::array<std::atomic<Stream*>, kPools * kStreamsPerPool> streams{};
  std::array<std::atomic<uint32_t>, kPools> next{};
  std::atomic<uint32_t> owned{0};  // a bit per stream of kOwnedPool
};

struct Engine {
  std::mutex mutex;  // guards making streams and changes of blocking
  std::array<Device, kMaxDevices> devices;
  // Written under the mutex. Relaxed: a launch that races with a change may go
  // either way.
  std::atomic<bool> blocking{env_flag("NPU_LAUNCH_BLOCKING") ||
                             env_flag("ASCEND_LAUNCH_BLOCKING") ||
                             env_string("TASK_QUEUE_ENABLE", "1") == "0"};
  int blocking_threads = 0;
  bool profiled = false;  // under the mutex

  // Whether streams must ask launch_blocks() at each launch.
  bool may_block() const {
    return blocking.load(std::memory_order_relaxed) || blocking_threads > 0;
  }
};

std::atomic<bool> strict_{env_flag("NPU_STRICT_STREAMS")};
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

// Ends with its thread, which must not be counted any longer.
struct ThreadBlocking {
  bool on = false;
  ~ThreadBlocking() { set_thread_launch_blocking(false); }
};
thread_local ThreadBlocking thread_blocking;

void update_blocking(Engine& e) {
  for (Device& device : e.devices)
    for (auto& slot : device.streams)
      if (Stream* s = slot.load(std::memory_order_relaxed))
        s->set_blocking(e.may_block());
}

int pool_size(StreamPool pool) {
  static const int most =
      int(env_int("STREAMS_PER_DEVICE", kStreamsPerPool, 1, kStreamsPerPool));
  if (pool == kOwnedPool || pool >= StreamPool::kComm) return kStreamsPerPool;
  switch (pool) {
    case StreamPool::kDefault:
      return 1;
    case StreamPool::kSyncLaunch:
      return kSyncLaunchStreams;
    case StreamPool::kNormal:
    case StreamPool::kHigh:
      return most;
    case StreamPool::kComm:
      return kStreamsPerPool;
  }
  return 0;
}

Stream* make_stream(int device, int64_t id) {
  Engine& e = engine();
  std::lock_guard lock(e.mutex);
  auto& slot = e.devices[device].streams[id];
  if (Stream* made = slot.load(std::memory_order_relaxed)) return made;
  const auto pool = StreamPool(id >> 5);
  const auto mode = pool == StreamPool::kSyncLaunch ? StreamMode::kInline
                                                    : StreamMode::kQueued;
  const int priority = pool == StreamPool::kHigh ? -1 : 0;
  publish_segment_after_fork();
  Stream* stream = new Stream(device, id, priority, mode);
  stream->set_blocking(e.may_block());
  open_trace_file();
  if (trace_wanted()) stream->set_traced(true);
  stream->set_observed(observer() != nullptr);
  if (e.profiled) stream->set_profiled(true);
  DeviceBlock& block = segment().devices[device];
  block.memory_total.store(driver().memory_total(device),
                           std::memory_order_relaxed);
  initialized_.store(true, std::memory_order_release);
  slot.store(stream, std::memory_order_release);
  return stream;
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

Stream& next_stream(int device, StreamPool pool) {
  const uint32_t n = engine().devices[device].next[int(pool)].fetch_add(
      1, std::memory_order_relaxed);
  if (n >= uint32_t(pool_size(pool)) && strict_pools())
    throw std::runtime_error(
        "npu:" + std::to_string(device) + " has handed out all " +
        std::to_string(pool_size(pool)) +
        " streams of this kind, and strict mode hands out none twice; keep "
        "and reuse torch.npu.Stream objects");
  return *find_stream(device, int64_t(pool) << 5 | (n % pool_size(pool)));
}

// Relaxed: a switch that orders nothing.
void set_strict_pools(bool strict) {
  strict_.store(strict, std::memory_order_relaxed);
}
bool strict_pools() { return strict_.load(std::memory_order_relaxed); }

Stream* take_owned_stream(int device) {
  std::atomic<uint32_t>& owned = engine().devices[device].owned;
  // Acquire: what the previous owner did comes before what the next one does.
  uint32_t taken = owned.load(std::memory_order_relaxed);
  int index;
  do {
    if (!~taken) return nullptr;
    index = __builtin_ctz(~taken);
  } while (!owned.compare_exchange_weak(taken, taken | 1u << index,
                                        std::memory_order_acquire));
  return find_stream(device, int64_t(kOwnedPool) << 5 | index);
}

bool give_owned_stream(Stream& stream) {
  if (StreamPool(stream.id() >> 5) != kOwnedPool) return false;
  const uint32_t bit = 1u << (stream.id() & 31);
  // Release: pairs with the acquire in take_owned_stream().
  return engine().devices[stream.device()].owned.fetch_and(
             ~bit, std::memory_order_release) &
         bit;
}

Stream& current_stream(int device) {
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

void synchronize_device(int device, WaitReason reason) {
  for (auto& slot : engine().devices[device].streams)
    if (Stream* s = slot.load(std::memory_order_acquire))
      host_wait(*s, s->tail(), reason);
}

void set_launch_blocking(bool blocking) {
  Engine& e = engine();
  std::lock_guard lock(e.mutex);
  e.blocking.store(blocking, std::memory_order_relaxed);
  update_blocking(e);
}

void obey_control() {
  static Counter& asked = segment().control.launch_blocking;
  static std::atomic<uint64_t> obeyed{0};
  // Relaxed throughout: the word alone says what is wanted, and a launch that
  // races with a change may go either way.
  const uint64_t wanted = asked.load(std::memory_order_relaxed);
  if (wanted == obeyed.load(std::memory_order_relaxed)) [[likely]]
    return;
  Engine& e = engine();
  // Whoever holds it may be waiting for this thread to end. Another time.
  std::unique_lock lock(e.mutex, std::try_to_lock);
  if (!lock) return;
  if (wanted) {
    e.blocking.store(wanted == 2, std::memory_order_relaxed);
    update_blocking(e);
  }
  obeyed.store(wanted, std::memory_order_relaxed);
}

bool set_thread_launch_blocking(bool blocking) {
  if (thread_blocking.on == blocking) return blocking;
  thread_blocking.on = blocking;
  Engine& e = engine();
  std::lock_guard lock(e.mutex);
  e.blocking_threads += blocking ? 1 : -1;
  update_blocking(e);
  return !blocking;
}

bool launch_blocks() {
  return thread_blocking.on ||
         engine().blocking.load(std::memory_order_relaxed);
}

void install_observer(Observer* observer) {
  Engine& e = engine();
  std::lock_guard lock(e.mutex);
  set_observer(observer);
  for (Device& device : e.devices)
    for (auto& slot : device.streams)
      if (Stream* s = slot.load(std::memory_order_relaxed))
        s->set_observed(observer != nullptr);
}

void set_profiled(bool profiled) {
  Engine& e = engine();
  std::lock_guard lock(e.mutex);
  e.profiled = profiled;
  for (Device& device : e.devices)
    for (auto& slot : device.streams)
      if (Stream* s = slot.load(std::memory_order_relaxed))
        s->set_profiled(profiled);
}

void shut_down() {
  if (!initialized() || in_bad_fork()) return;
  // Again, as long as tasks of one stream submit to another that was stopped.
  for (bool stopped = true; stopped;) {
    stopped = false;
    for (int device = 0; device < device_count(); ++device)
      for (Stream* s : streams(device)) stopped |= s->stop();
  }
  for (int device = 0; device < device_count(); ++device)
    for (Stream* s : streams(device))
      if (auto error = s->error())
        fprintf(stderr, "npu_dispatch: unreported at exit: %s\n",
                error->message().c_str());
  remove_segment();
  remove_trace_file();
}

}  // namespace npu
