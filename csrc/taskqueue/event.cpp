#include "csrc/taskqueue/event.h"

#include <memory>

#include "csrc/stats/segment.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

bool Event::record(Stream& stream) {
  Submission s;
  s.gate = 0;  // without timing there is no task
  if (timing_ == Timing::kOn) {
    // Owned here until begin() has succeeded, which may refuse or throw.
    std::unique_ptr<TimeCell> cell(TimeCell::make());
    if (!stream.begin(1, s, call_site())) return false;
    s.task->marks.kind = TaskKind::kTimestamp;
    s.task->kernel = nullptr;
    s.words[0] = reinterpret_cast<uint64_t>(cell.get());
    stream.commit(s);
    // From here on the task holds the cell, too.
    forget();
    cell_ = cell.release();
    number_ = s.position + 1;
    if (TaskSink* sink = stream.sink()) number_ = sink->mark(stream);
  } else {
    if (stream.failed()) return false;
    number_ = stream.end();
  }
  const bool first = !stream_;
  if (stream_ != &stream) seen_done();
  stream_ = &stream;
  count_record(first);
  stream.after_mark(s);
  return true;
}

bool Event::done() const {
  if (number_ >= kCapturedNumber) {
    if (TaskSink* capture = active_capture())
      capture->host_waits(*stream_, WaitReason::kEventSync);
    return !cell_ || cell_->ns() != 0;
  }
  if (!stream_) return true;
  const bool done = host_poll(*stream_, number_);
  if (done) seen_done();
  return done;
}

void Event::synchronize() const {
  if (number_ >= kCapturedNumber) {
    if (TaskSink* capture = active_capture())
      capture->host_waits(*stream_, WaitReason::kEventSync);
    return;
  }
  if (!stream_) return;
  host_wait(*stream_, number_, WaitReason::kEventSync);
  seen_done();
}

// Relaxed throughout: statistics order nothing.
void Event::count_record(bool first) {
  DeviceBlock& block = segment().devices[stream_->device()];
  if (first) block.events_created.fetch_add(1, std::memory_order_relaxed);
  block.events_recorded.fetch_add(1, std::memory_order_relaxed);
  if (!pending_.exchange(true, std::memory_order_relaxed))
    block.events_pending.fetch_add(1, std::memory_order_relaxed);
}

void Event::seen_done() const {
  if (pending_.load(std::memory_order_relaxed) &&
      pending_.exchange(false, std::memory_order_relaxed))
    segment().devices[stream_->device()].events_pending.fetch_sub(
        1, std::memory_order_relaxed);
}

void Event::forget() {
  if (cell_) cell_->release();
  cell_ = nullptr;
}

}  // namespace npu
