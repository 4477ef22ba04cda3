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

// Streams that capture send their tasks here. What a capture does not allow
// throws CaptureError, and leaves the capture as it was.
class Capture final : public TaskSink {
 public:
  static Capture& get();

  // Throws CaptureError when one is under way or `stream` cannot capture.
  // Everything given to `stream` before must be done.
  void begin(const void* owner, Stream& stream, uint64_t pool,
             CaptureMode mode);
  // Throws CaptureError, with the capture still under way, when `stream` is not
  // the one it began on; with the capture over, when a stream was left
  // unjoined. Otherwise what was captured.
  std::unique_ptr<Body> end(const void* owner, Stream& stream);
  // Ends the capture of `owner`, if it is the one under way; forgets its work.
  void abandon(const void* owner);

  bool under_way() const { return active_capture() == this; }
  const void* owner() const { return owner_; }

  // The memory pool of the capture under way.
  uint64_t pool();

  // The place of `count` random offsets in the replay's draws from the source
  // that `id` names; made by `make` at its first use. Only where
  // stream.sink() == this.
  Draws draw(const void* id,
             const std::function<std::unique_ptr<RandomSource>()>& make,
             uint64_t count);

  // Tasks whose arguments may be replaced: between the two calls, those of
  // `stream`. Throws where there is none; null: no task came in between.
  void begin_group(Stream& stream);
  Group* end_group(Stream& stream);

  // Throws the CaptureError for `what`, which `rule` does not allow.
  [[noreturn]] void refuse(const std::string& what, const std::string& rule);

  // The same, unless another thread captures in a mode that allows it.
  void forbid(const std::string& what, const std::string& rule);

  void open(Stream& stream, uint32_t n_words, Submission& s) override;
  void close(Stream& stream, Submission& s) noexcept override;
  uint64_t mark(Stream& stream) override;
  void wait(Stream& stream, Stream& other, uint64_t number) override;
  void host_waits(const Stream& stream, WaitReason reason) override;

 private:
  Capture() = default;

  size_t lane_of(const Stream& stream) const;  // lanes.size(): none
  // Adds what close() is given. A bad_alloc, and the body is of no use.
  void keep(Stream& stream);
  Node& add(size_t lane, Node::Kind kind);
  void check_thread(const char* what);
  uint64_t number_of(int node) const;
  std::unique_ptr<Body> stop();
  // Why this capture will count as failed; the first cause stays.
  void failed_by(CaptureFailure cause);
  void count_end();
  std::string unjoined(const Body& body) const;

  // Held from open() to close(). Guards everything below.
  std::recursive_mutex mutex_;
  std::unique_ptr<Body> body_;
  const void* owner_ = nullptr;
  CaptureMode mode_ = CaptureMode::kGlobal;
  std::thread::id thread_;
  std::string begun_by_;
  std::vector<const void*> source_ids_;
  uint64_t generation_ = 0;
  Group* group_ = nullptr;
  const Stream* group_stream_ = nullptr;
  Task task_;
  std::vector<uint64_t> words_;
  CaptureFailure failure_ = CaptureFailure::kCount;  // none
  bool incomplete_ = false;  // something could not be kept
};

// The kernel and words of a task as a node keeps them.
Call make_call(const npu_kernel* kernel, std::vector<uint64_t> words);

// Throws when a capture is under way that does not allow the calling thread to
// wait for `stream`, as operator or function `what` is about to do.
void forbid_wait(const Stream& stream, const std::string& what,
                 const std::string& rule);
// Throws when `stream` captures: asking whether it is idle has no answer.
void forbid_query(const Stream& stream);
// Throws when `stream` captures.
void forbid_on(const Stream& stream, const std::string& what,
               const std::string& rule);
// Throws when the calling thread, or in the global mode any, captures.
void forbid_anywhere(const std::string& what, const std::string& rule);

}  // namespace npu
