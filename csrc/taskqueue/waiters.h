// Who is to be told when a stream has retired a number of tasks, with no thread
// that waits for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/taskqueue/completion_port.h"
#include "csrc/taskqueue/sequence.h"

namespace npu {

class Stream;

class Waiters {
 public:
  Waiters() = default;
  ~Waiters();
  Waiters(const Waiters&) = delete;

  // True: `port` gets a completion with this token once `retired` reaches
  // `number`, perhaps before this returns. False: it has been reached, and
  // nothing is delivered. Any thread; never waits.
  bool add(Sequence& retired, uint64_t number, CompletionPort& port,
           uint64_t token);

  // Called by the stream's advancing thread after an advance_to() that somebody
  // waited for: delivers what has been reached, and arms the sequence for the
  // next number.
  void retired(Stream& stream, uint64_t number);

 private:
  // Completions that the advancing thread has not yet seen; newest first.
  alignas(kCacheLine) std::atomic<Completion*> added_{nullptr};
  // The advancing thread's: a pairing heap with the smallest number on top.
  Completion* heap_ = nullptr;
};

// The stream's error, where the task that failed is before `number`; else null.
std::unique_ptr<StreamError> error_before(const Stream& stream,
                                          uint64_t number);

}  // namespace npu
