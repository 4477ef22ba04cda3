#include "csrc/taskqueue/stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>

#include "csrc/base/clock.h"
#include "csrc/driver/registry.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/launcher.h"
#include "csrc/taskqueue/observer.h"

namespace npu {
namespace {

constexpr int kUrgentNice = -5;

std::atomic<Observer*> observer_{nullptr};

StreamBlock* make_block(int device, int64_t id, uint64_t capacity) {
  StreamBlock* block = claim_stream_block();
  if (!block) block = new StreamBlock{};  // not published, still counted
  block->device = device;
  block->stream_id = id;
  block->capacity = capacity;
  block->state.store(uint32_t(StreamState::kRunning),
                     std::memory_order_release);
  return block;
}

size_t ring_bytes(uint64_t capacity) {
  return capacity * sizeof(Ring<Task>::Slot);
}

Ring<Task>::Slot* map_slots(StreamMode mode, uint64_t capacity) {
  if (mode == StreamMode::kInline) return nullptr;
  void* memory = mmap(nullptr, ring_bytes(capacity), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("npu_dispatch: no memory for a stream's queue");
    abort();
  }
  madvise(memory, ring_bytes(capacity), MADV_HUGEPAGE);
  return static_cast<Ring<Task>::Slot*>(memory);
}

}  // namespace

Observer* observer() { return observer_.load(std::memory_order_acquire); }

void set_observer(Observer* observer) {
  observer_.store(observer, std::memory_order_release);
}

std::string StreamError::message() const {
  return "npu:" + std::to_string(device) + " stream " + std::to_string(stream) +
         " task " + std::to_string(task) + ": " + op + " failed: " + text;
}

Stream::Stream(int device, int64_t id, int priority, StreamMode mode,
               uint64_t capacity)
    : device_(device),
      id_(id),
      priority_(priority),
      mode_(mode),
      block_(make_block(device, id, capacity)),
      slots_(map_slots(mode, capacity)),
      ring_(slots_, capacity, block_->ring),
      gate_(mode == StreamMode::kInline ? kInlineMode : kNotStarted) {
  queue_ = driver().queue_create(device, priority);
}

Stream::~Stream() {
  stop();
  driver().queue_destroy(queue_);
  block_->state.store(uint32_t(StreamState::kUnused),
                      std::memory_order_release);
  if (slots_) munmap(slots_, ring_bytes(capacity()));
}

bool Stream::begin_slow(uint32_t n_words, Submission& s) {
  if (s.gate & kForked) return false;
  if (s.gate & kNotStarted) {
    start();
    s.gate &= ~uint32_t(kNotStarted);
  }
  if (s.gate & kFailed) return false;
  if (!(s.gate & kInlineMode)) return open(n_words, s);
  inline_mutex_.lock();
  // Again, now that the tasks before this one are done.
  if (failed()) {
    inline_mutex_.unlock();
    return false;
  }
  s.position = tail();
  uint64_t* chunk =
      n_words > Task::kInlineWords ? arena_.take(n_words) : nullptr;
  fill(inline_task_, n_words, chunk, s);
  inline_task_.stamp = 0;
  return true;
}

void Stream::commit_slow(Submission& s) {
  if (s.gate & kObserved)
    if (Observer* o = observer()) o->submitted(*this, s.position, *s.task);
  if (s.gate & kInlineMode) {
    Launcher launcher(*this);
    npu_failure failure;
    failure.text[0] = 0;
    const int code = launcher.execute(*s.task, failure);
    if (code != NPU_OK) {
      bump(block_->failed);
      fail(code, s.task->kernel ? s.task->kernel->name : "wait", s.position,
           failure.text);
    }
    if (s.task->spilled) arena_.give(s.words);
    block_->ring.tail.store(s.position + 1, std::memory_order_relaxed);
    retired_.advance_to(s.position + 1);
    block_->retired.store(s.position + 1, std::memory_order_relaxed);
    block_->inline_tasks.fetch_add(1, std::memory_order_relaxed);
    inline_mutex_.unlock();
    return;
  }
  ring_.publish(s.position);
  parking_.wake_if_parked();
  if (s.gate & kBlocking)
    host_wait(*this, s.position + 1, WaitReason::kStreamSync);
}

uint64_t Stream::claim_when_full(uint64_t* chunk) {
  const uint64_t start = now_ns();
  block_->full_waits.fetch_add(1, std::memory_order_relaxed);
  uint64_t position;
  // The launcher announces freed slots once per eighth of the ring; wait for
  // the first announcement after the oldest task.
  const uint64_t step = capacity() >= 8 ? capacity() / 8 : 1;
  while ((position = ring_.claim()) == kRingFull) {
    const uint64_t oldest = tail() - capacity() + 1;
    try {
      host_wait_for_space(*this, round_up(oldest, step));
    } catch (...) {
      if (chunk) arena_.give(chunk);
      throw;
    }
  }
  block_->full_wait_ns.fetch_add(now_ns() - start, std::memory_order_relaxed);
  return position;
}

bool Stream::wait_for(Stream& other, uint64_t number) {
  if (Observer* o = observer()) o->stream_waits(*this, other, number);
  if (&other == this || (other.retired().reached(number) && !other.failed()))
    return !failed();
  Submission s;
  if (!begin(2, s)) return false;
  s.task->kind = TaskKind::kWait;
  s.task->kernel = nullptr;
  s.words[0] = reinterpret_cast<uint64_t>(&other);
  s.words[1] = number;
  commit(s);
  return true;
}

void Stream::start() {
  std::lock_guard lock(launcher_mutex_);
  if (!(gate_.load(std::memory_order_relaxed) & kNotStarted)) return;
  // Signals belong to the program's own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  launcher_ = std::thread([this] {
    const std::string name =
        "npu" + std::to_string(device_) + "/s" + std::to_string(id_);
    pthread_setname_np(pthread_self(), name.c_str());
    // The preference of an urgent stream. Needs CAP_SYS_NICE, else no effect.
    if (priority_ < 0) setpriority(PRIO_PROCESS, id_t(gettid()), kUrgentNice);
    Launcher(*this).run();
  });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  gate_.fetch_and(~uint32_t(kNotStarted), std::memory_order_relaxed);
}

void Stream::fail(int32_t code, const char* op, uint64_t task,
                  const char* text) {
  {
    std::lock_guard lock(error_mutex_);
    if (error_) return;
    error_ = std::make_unique<StreamError>(
        StreamError{code, device_, id_, task, op, text});
  }
  block_->state.store(uint32_t(StreamState::kFailed),
                      std::memory_order_relaxed);
  // Release: whoever sees the bit finds the error.
  gate_.fetch_or(kFailed, std::memory_order_release);
}

bool Stream::failed() const {
  return gate_.load(std::memory_order_acquire) & kFailed;
}

std::unique_ptr<StreamError> Stream::error() const {
  if (!failed()) return nullptr;
  std::lock_guard lock(error_mutex_);
  return error_ ? std::make_unique<StreamError>(*error_) : nullptr;
}

void Stream::clear_error() {
  host_wait(*this, tail(), WaitReason::kStreamSync);
  std::lock_guard lock(error_mutex_);
  error_.reset();
  block_->state.store(uint32_t(StreamState::kRunning),
                      std::memory_order_relaxed);
  gate_.fetch_and(~uint32_t(kFailed), std::memory_order_relaxed);
}

void Stream::set_blocking(bool blocking) {
  if (blocking) {
    gate_.fetch_or(kBlocking, std::memory_order_relaxed);
  } else {
    gate_.fetch_and(~uint32_t(kBlocking), std::memory_order_relaxed);
  }
}

void Stream::set_observed(bool observed) {
  if (observed) {
    gate_.fetch_or(kObserved, std::memory_order_relaxed);
  } else {
    gate_.fetch_and(~uint32_t(kObserved), std::memory_order_relaxed);
  }
}

void Stream::stop() {
  // Held until the launcher is gone: whoever submits meanwhile waits in
  // start(), and there are never two launchers.
  std::lock_guard lock(launcher_mutex_);
  if (!launcher_.joinable()) return;
  gate_.fetch_or(kNotStarted, std::memory_order_relaxed);
  // Release: pairs with the acquire in Launcher::wait_for_work().
  stopping_.store(true, std::memory_order_release);
  parking_.wake_if_parked();
  launcher_.join();
  stopping_.store(false, std::memory_order_relaxed);
}

void Stream::abandon_after_fork() {
  // The launcher does not exist in this process; its handle must not be
  // joined or destroyed.
  new (&launcher_mutex_) std::mutex;
  new (&error_mutex_) std::mutex;
  new (&launcher_) std::thread;
  gate_.store(kForked, std::memory_order_relaxed);
}

}  // namespace npu
