// The capture under way: at most one in the process.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/graph/body.h"
#include "csrc/taskqueue/stream.h"
#include "csrc/taskqueue/task_sink.h"

namespace npu {

enum class CaptureMode {
  kGlobal,       // no thread may wait for the device
  kThreadLocal,  // the capturing thread may not; no other may submit to it
  kRelaxed,      // only waits for captured work are errors
};

// Streams that capture send their tasks here. A call that a capture does not
// allow throws CaptureError and leaves the capture as it was.
class Capture final : public TaskSink {
 public:
  static Capture& get();

  // Throws CaptureError when one is under way or `stream` cannot capture.
  // Everything given to `stream` before must be done.
  // `check_inputs`: replays are refused once memory has been freed that the
  // graph uses and does not own.
  void begin(const void* owner, Stream& stream, uint64_t pool, CaptureMode mode,
             bool check_inputs = false);
  // Returns what was captured. Throws CaptureError when `stream` is not the one
  // that the capture began on, with the capture still under way; or when a
  // stream was left unjoined or there was no host memory, with the capture
  // over.
  std::unique_ptr<Body> end(const void* owner, Stream& stream);
  // Ends the capture of `owner`, if it is the one under way; null: whosever it
  // is. The caller destroys the work that it is given, which may need the
  // interpreter.
  std::unique_ptr<Body> abandon(const void* owner = nullptr);
  // Called when a thread ends. It ends the capture that the thread has begun,
  // except in the relaxed mode, in which another thread may end it.
  void thread_ends() noexcept;

  bool under_way() const { return active_capture() == this; }
  // Whether the capture under way is that of `owner`.
  bool is_of(const void* owner);
  // Of the capture under way, or of the last one.
  uint64_t number() {
    std::lock_guard lock(mutex_);
    return generation_;
  }

  // The memory pool of the capture under way.
  std::shared_ptr<GraphPool> pool();

  // Lets each replay take `count` numbers of the source `id`, which `make`
  // makes at its first use. Returns the index of the source (as `seed`) and
  // where the numbers begin among those that a replay takes of it. To be called
  // only where the sink() of the caller's stream is this capture.
  Draws draw(const void* id,
             const std::function<std::unique_ptr<NumberSource>()>& make,
             uint64_t count);

  // The tasks of `stream` between the two calls become a group, whose arguments
  // may be replaced. Throws where `stream` does not capture, or no group was
  // begun. Null: there was no task between the calls.
  void begin_group(Stream& stream);
  std::shared_ptr<Group> end_group(Stream& stream);

  // Throws the CaptureError for `what`, which `rule` does not allow.
  [[noreturn]] void refuse(const std::string& what, const std::string& rule);

  // Like refuse(), unless another thread captures in a mode that allows `what`.
  void forbid(const std::string& what, const std::string& rule);

  void open(Stream& stream, uint32_t n_words, Submission& s) override;
  void close(Stream& stream, Submission& s) noexcept override;
  uint64_t mark(Stream& stream) override;
  void wait(Stream& stream, Stream& other, uint64_t number) override;
  void host_waits(const Stream& stream, WaitReason reason) override;

 private:
  Capture() = default;

  size_t lane_of(const Stream& stream) const;  // lanes.size(): none
  // Makes a stream of the device the next lane.
  void join(Stream& stream);
  // Adds the task that close() is given. After a bad_alloc the body is useless.
  void keep(Stream& stream);
  // Something could not be added to the body, which capture_end() reports.
  void not_kept();
  Node& add(size_t lane, Node::Kind kind);
  // Whether the calling thread, or one that it works for, has begun the
  // capture.
  bool takes_part() const;
  void check_thread(const char* what);
  uint64_t number_of(int node) const;
  std::unique_ptr<Body> detach();
  std::unique_ptr<Body> stop();
  // Notes why this capture will count as failed; the first cause stays.
  void failed_by(CaptureFailure cause);
  void count_end();
  // Throws where what was captured cannot be replayed.
  void check_complete(const Stream& stream);

  // Guards everything below. Held from open() to close().
  std::recursive_mutex mutex_;
  std::unique_ptr<Body> body_;
  const void* owner_ = nullptr;
  CaptureMode mode_ = CaptureMode::kGlobal;
  std::thread::id thread_;
  std::string begun_by_;
  uint64_t generation_ = 0;
  std::shared_ptr<Group> group_;  // that is under way
  const Stream* group_stream_ = nullptr;
  Task task_{};
  std::vector<uint64_t> words_;
  CaptureFailure failure_ = CaptureFailure::kCount;  // none
  bool incomplete_ = false;                          // a task could not be kept
};

// The kernel and words of a task as a node keeps them.
Call make_call(const npu_kernel* kernel, std::vector<uint64_t> words);

// Throws when a capture is under way that does not allow the calling thread to
// wait for `stream`, as the operator or function `what` is about to do.
void forbid_wait(const Stream& stream, const std::string& what,
                 const std::string& rule);
// Throws when `stream` captures: it is then neither idle nor busy.
void forbid_query(const Stream& stream);
// Throws when `stream` captures.
void forbid_on(const Stream& stream, const std::string& what,
               const std::string& rule);
// Throws when the calling thread captures, or in the global mode any thread.
void forbid_anywhere(const std::string& what, const std::string& rule);

}  // namespace npu
