// Range markers in the trace: moments of a thread or of a stream.
#pragma once

#include <cstdint>

namespace npu {

struct TraceMark {
  uint64_t range;         // its number, the same at both ends
  uint32_t name, domain;  // trace_text()
  uint8_t kind;           // kMarkBegin, kMarkEnd, kMarkPoint
  int32_t device;         // -1: the host
  int64_t where;          // stream, or thread
};

// Notes the mark at this moment. Does nothing when nobody traces. Any thread.
void trace_mark(const TraceMark& mark);

}  // namespace npu
