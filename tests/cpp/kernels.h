// Kernels that tests queue: they record, wait for a gate, or fail.
#pragma once

#include <stdio.h>
#include <string.h>

#include <atomic>
#include <initializer_list>
#include <vector>

#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

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

// words: vector<uint64_t>*, value...
inline int run_append(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<std::vector<uint64_t>*>(words[0])->push_back(words[1]);
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

inline constexpr npu_kernel kAppend{run_append, "test::append", nullptr, 0};
inline constexpr npu_kernel kGate{run_gate, "test::gate", nullptr, 0};
inline constexpr npu_kernel kFail{run_fail, "test::fail", nullptr, 0};
inline constexpr npu_kernel kNothing{run_nothing, "test::nothing", nullptr, 0};

// Queues kernel(words..., and zeros up to n_words). False when refused.
inline bool submit(Stream& stream, const npu_kernel& kernel,
                   std::initializer_list<uint64_t> words,
                   uint32_t n_words = 0) {
  if (n_words < words.size()) n_words = uint32_t(words.size());
  Submission s;
  if (!stream.begin(n_words, s)) return false;
  s.task->kernel = &kernel;
  uint32_t at = 0;
  for (uint64_t word : words) s.words[at++] = word;
  while (at < n_words) s.words[at++] = 0;
  stream.commit(s);
  stream.after_commit(s);
  return true;
}

// Returns when the stream stands still in a task, until the gate opens.
inline void hold(Stream& stream, Gate& gate) {
  submit(stream, kGate, {reinterpret_cast<uint64_t>(&gate)});
  gate.wait_until_entered();
}

// Waits for what has been queued so far.
inline void drain(Stream& stream) {
  host_wait(stream, stream.tail(), WaitReason::kStreamSync);
}

template <typename T>
uint64_t word(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace npu::check
