#include "csrc/observe/trace_marks.h"

#include <mutex>

#include "csrc/base/clock.h"
#include "csrc/observe/trace.h"

namespace npu {

void trace_mark(const TraceMark& mark) {
  if (!trace_wanted()) return;
  static std::mutex mutex;  // guards the ring, which allows one writer
  static TraceRing* ring = nullptr;
  std::lock_guard lock(mutex);
  if (!ring) {
    calibrate_trace();
    ring = claim_trace_ring(-1, -1);
    if (!ring) return;
  }
  TraceRecord record{};
  record.position = mark.range;
  record.submitted = record.started = record.ended = ticks();
  record.name = mark.name;
  record.depth = mark.domain;
  record.kind = mark.kind;
  record.line = kNoTraceName;
  record.other_device = int16_t(mark.device);
  record.other_stream = mark.where;
  add(*ring, record);
}

}  // namespace npu
