// What takes a stream's tasks instead of its ring, while a graph is captured.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "csrc/stats/layout.h"

namespace npu {

class Stream;
struct Submission;

// Thrown where a capture does not allow what was asked for; nothing has
// changed.
struct CaptureError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Event numbers from here on name points of a capture, not of a queue.
inline constexpr uint64_t kCapturedNumber = uint64_t{1} << 63;

// All functions are called on the submitting thread. All but close() may throw
// CaptureError: a task that open() accepted is taken. A sink is never
// destroyed, because a thread may still read the pointer to one that has just
// been taken away.
class TaskSink {
 public:
  // What Stream::begin() and commit() do while the stream has a sink.
  virtual void open(Stream& stream, uint32_t n_words, Submission& s) = 0;
  virtual void close(Stream& stream, Submission& s) noexcept = 0;
  // The work taken from `stream` so far, as a number for wait().
  virtual uint64_t mark(Stream& stream) = 0;
  // Orders what `stream` is given from now on after point `number` of `other`.
  virtual void wait(Stream& stream, Stream& other, uint64_t number) = 0;
  // Called where a host thread is about to wait for `stream`.
  virtual void host_waits(const Stream& stream, WaitReason reason) = 0;

 protected:
  ~TaskSink() = default;
};

// The capture under way in this process, or null.
TaskSink* active_capture();
void set_active_capture(TaskSink* capture);

}  // namespace npu
