// The statistics segment: its file, and where its fields are.
#include <pybind11/stl.h>
#include <stddef.h>

#include <map>

#include "csrc/python/bindings.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

std::map<std::string, size_t> layout() {
#define FIELD(type, name) {#type "." #name, offsetof(type, name)}
  return {
      {"kLayoutVersion", kLayoutVersion},
      {"kDepthBuckets", kDepthBuckets},
      {"kLatencyBuckets", kLatencyBuckets},
      {"kSamplePeriod", kSamplePeriod},
      {"kWaitReasons", size_t(WaitReason::kCount)},
      {"SegmentHeader.size", sizeof(SegmentHeader)},
      {"DeviceBlock.size", sizeof(DeviceBlock)},
      {"StreamBlock.size", sizeof(StreamBlock)},
      FIELD(Segment, devices),
      FIELD(Segment, streams),
      FIELD(DeviceBlock, waits),
      FIELD(DeviceBlock, wait_ns),
      FIELD(DeviceBlock, memory_total),
      FIELD(DeviceBlock, allocated),
      FIELD(DeviceBlock, allocated_peak),
      FIELD(DeviceBlock, reserved),
      FIELD(StreamBlock, state),
      FIELD(StreamBlock, device),
      FIELD(StreamBlock, stream_id),
      FIELD(StreamBlock, capacity),
      {"StreamBlock.tail",
       offsetof(StreamBlock, ring) + offsetof(RingControl<>, tail)},
      {"StreamBlock.head",
       offsetof(StreamBlock, ring) + offsetof(RingControl<>, head)},
      FIELD(StreamBlock, retired),
      FIELD(StreamBlock, failed),
      FIELD(StreamBlock, dropped),
      FIELD(StreamBlock, parks),
      FIELD(StreamBlock, last_retired_ns),
      FIELD(StreamBlock, depth),
      FIELD(StreamBlock, queued_ns),
      FIELD(StreamBlock, latency_ns),
      FIELD(StreamBlock, full_waits),
      FIELD(StreamBlock, full_wait_ns),
      FIELD(StreamBlock, inline_tasks),
  };
#undef FIELD
}

}  // namespace

void bind_stats(pybind11::module_& m) {
  m.def("segment_path", [] { return segment_path(); });
  m.def("segment_layout", &layout);
}

}  // namespace npu
