// Kernels that tests queue: they record, wait for a gate, or fail; and how
// tests queue them.
#pragma once

#include "csrc/base/clock.h"
#include "csrc/base/hooks.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/stream_pools.h"
#include "csrc/engine/switches.h"
#include "csrc/observe/observer.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/event.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"
#include "tests/cpp/check.h"

namespace npu::check {

// Holds the launcher inside a task until the test opens it.
class Gate {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void wait_until_entered() { entered_.wait(false); }
  void pass() {
    entered_.store(true);
    entered_.notify_all();
    open_.wait(false);
  }

 private:
  std::atomic<bool> open_{false}, entered_{false};
};

// words: Numbers*, value...
inline int run_append(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<Numbers*>(words[0])->push_back(words[1]);
  return NPU_OK;
}
// words: Gate*
inline int run_gate(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<Gate*>(words[0])->pass();
  return NPU_OK;
}
// words: code
inline int run_fail(const npu_kernel*, const uint64_t* words,
                    npu_failure* failure) {
  snprintf(failure->text, sizeof failure->text, "asked to");
  return failure->code = int32_t(words[0]);
}
inline int run_nothing(const npu_kernel*, const uint64_t*, npu_failure*) {
  return NPU_OK;
}

// words: std::function<void()>*, which the task calls
inline int run_call(const npu_kernel*, const uint64_t* words, npu_failure*) {
  (*reinterpret_cast<const std::function<void()>*>(words[0]))();
  return NPU_OK;
}

inline constexpr npu_kernel kAppend{run_append, "test::append", nullptr, 0};
inline constexpr npu_kernel kGate{run_gate, "test::gate", nullptr, 0};
inline constexpr npu_kernel kFail{run_fail, "test::fail", nullptr, 0};
inline constexpr npu_kernel kCall{run_call, "test::call", nullptr, 0};
inline constexpr npu_kernel kCallOnHost{run_call, "test::call", nullptr, 0,
                                        NPU_KERNEL_ON_HOST};
inline constexpr npu_kernel kNothing{run_nothing, "test::nothing", nullptr, 0};

template <typename T>
uint64_t word(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// Begins kernel(words..., and zeros up to n_words). False when refused.
inline bool begin(Stream& stream, Submission& s, const npu_kernel& kernel,
                  std::initializer_list<uint64_t> words, uint32_t n_words = 0,
                  CallSite site = {}) {
  if (n_words < words.size()) n_words = uint32_t(words.size());
  if (!stream.begin(n_words, s, site)) return false;
  s.task->kernel = &kernel;
  std::fill(std::copy(words.begin(), words.end(), s.words), s.words + n_words,
            0);
  return true;
}

// Queues kernel(words..., and zeros up to n_words). False when refused.
inline bool submit(Stream& stream, const npu_kernel& kernel,
                   std::initializer_list<uint64_t> words, uint32_t n_words = 0,
                   CallSite site = {}) {
  Submission s;
  if (!begin(stream, s, kernel, words, n_words, site)) return false;
  stream.commit(s);
  stream.after_commit(s);
  return true;
}

inline bool append(Stream& stream, Numbers& got, uint64_t value) {
  return submit(stream, kAppend, {word(&got), value});
}

// Returns when the stream stands still in a task, until the gate opens.
inline void hold(Stream& stream, Gate& gate) {
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
}

// Waits for what has been queued so far.
inline void drain(Stream& stream) {
  host_wait(stream, stream.tail(), WaitReason::kStreamSync);
}

inline void drain(Stream& stream, Gate& opened) {
  opened.open();
  drain(stream);
}

// Fails the stream, and returns when it has failed.
inline void fail(Stream& stream, npu_code code = NPU_ERROR) {
  submit(stream, kFail, {uint64_t(code)});
  drain(stream);
}

// Whether the stream runs what it is given.
inline bool works(Stream& stream) {
  Numbers got;
  if (!append(stream, got, 1)) return false;
  drain(stream);
  return got.size() == 1;
}

// Calls body(0) to body(n - 1) on a thread each, and returns when all have
// ended.
template <typename Body>
void on_threads(int n, const Body& body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([&body, i] { body(i); });
}

// Holds a mutex that stands for the GIL, where that is wanted and the thread
// does not hold it already. Waits of the host release it, by these hooks.
class Gil {
 public:
  explicit Gil(bool wanted = true) : took_(wanted && !holds_) {
    if (took_) reacquire(nullptr);
  }
  ~Gil() {
    if (took_) release();
  }
  Gil(const Gil&) = delete;

  static void* release() {
    if (!holds_) return nullptr;
    holds_ = false;
    mutex_.unlock();
    return &mutex_;
  }
  static void reacquire(void*) {
    mutex_.lock();
    holds_ = true;
  }

 private:
  static inline std::mutex& mutex_ = *new std::mutex;  // outlives all threads
  static inline thread_local bool holds_ = false;
  const bool took_;
};

// Two streams, a gate that may hold them, and what their tasks append.
struct Streams {
  Numbers got;
  Gate gate;
  Stream one{0, 1, 0, StreamMode::kQueued}, two{0, 2, 0, StreamMode::kQueued};
};

// Lists an observer, of which the streams know, while it exists.
class Listed {
 public:
  Listed(Observer& observer, std::initializer_list<Stream*> streams)
      : observer_(observer), streams_(streams) {
    list(true);
  }
  ~Listed() { list(false); }
  Listed(const Listed&) = delete;

 private:
  void list(bool listed) {
    list_observer(observer_, listed);
    for (Stream* stream : streams_) stream->look_for_observers();
  }
  Observer& observer_;
  const std::vector<Stream*> streams_;
};

}  // namespace npu::check
