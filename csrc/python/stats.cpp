// The statistics segment: its file, and where its fields are.
#include <pybind11/stl.h>
#include <stddef.h>
#include <torch/version.h>

#include <map>

#include "csrc/distributed/core/collectives.h"
#include "csrc/engine/engine.h"
#include "csrc/python/bindings.h"
#include "csrc/stats/segment.h"

namespace npu {
namespace {

std::map<std::string, size_t> layout() {
#define FIELD(type, name) {#type "." #name, offsetof(type, name)}
  return {
      {"kLayoutVersion", kLayoutVersion},
      {"kExtensionAt", kExtensionAt},
      {"kDepthBuckets", kDepthBuckets},
      {"kTimeBuckets", kTimeBuckets},
      {"kSamplePeriod", kSamplePeriod},
      {"kWaitReasons", size_t(WaitReason::kCount)},
      {"kErrorCodes", kErrorCodes},
      {"kMaxNames", kMaxNames},
      {"kMaxSites", kMaxSites},
      {"kReportKinds", kReportKinds},
      {"kRecentTasks", kRecentTasks},
      {"kExemplarOctaves", kExemplarOctaves},
      {"kMaxOpenWaits", kMaxOpenWaits},
      {"kBypasses", size_t(Bypass::kCount)},
      {"kHolds", size_t(Hold::kCount)},
      {"kWorks", size_t(Work::kCount)},
      {"kCaptureFailures", size_t(CaptureFailure::kCount)},
      {"SegmentHeader.size", sizeof(SegmentHeader)},
      {"DeviceBlock.size", sizeof(DeviceBlock)},
      {"StreamBlock.size", sizeof(StreamBlock)},
      {"NameEntry.size", sizeof(NameEntry)},
      {"SiteEntry.size", sizeof(SiteEntry)},
      FIELD(SiteEntry, waits),
      FIELD(SiteEntry, tasks),
      FIELD(SiteEntry, text),
      {"Exemplars.size", sizeof(Exemplars)},
      {"RecentTask.size", sizeof(RecentTask)},
      {"OpenWait.size", sizeof(OpenWait)},
      FIELD(OpenWait, owner),
      FIELD(OpenWait, until),
      FIELD(Segment, process),
      FIELD(Segment, control),
      FIELD(Segment, waits),
      FIELD(Segment, devices),
      FIELD(Segment, streams),
      FIELD(Segment, names),
      FIELD(Segment, sites),
      {"CollectiveEntry.size", sizeof(CollectiveEntry)},
      {"CollectiveGroup.size", sizeof(CollectiveGroup)},
      {"kCollectiveLogVersion", kCollectiveLogVersion},
      FIELD(CollectiveEntry, shapes),
      FIELD(CollectiveGroup, name),
      FIELD(CollectiveGroup, ranks),
      FIELD(CollectiveLog, next),
      FIELD(CollectiveLog, groups),
      FIELD(CollectiveLog, log),
      {"CollectiveLog.size", sizeof(CollectiveLog)},
      FIELD(CollectiveLog, totals),
      FIELD(CollectiveLog, host),
      FIELD(CollectiveTotals, run_ns),
      {"CollectiveTotals.size", sizeof(CollectiveTotals)},
      {"HostPlace.size", sizeof(HostPlace)},
      FIELD(SegmentHeader, pid),
      FIELD(SegmentHeader, process_start),
      FIELD(SegmentHeader, monotonic_ns),
      FIELD(SegmentHeader, realtime_ns),
      FIELD(SegmentHeader, pid_namespace),
      FIELD(SegmentHeader, rank),
      FIELD(SegmentHeader, local_rank),
      FIELD(SegmentHeader, world_size),
      FIELD(SegmentHeader, job_id),
      FIELD(SegmentHeader, pod),
      FIELD(SegmentHeader, package),
      FIELD(SegmentHeader, command),
      FIELD(SegmentHeader, stack_start),
      FIELD(ProcessBlock, sanitizer_enabled),
      FIELD(ProcessBlock, trace_dropped),
      FIELD(ProcessBlock, async_waiters),
      FIELD(ProcessBlock, async_wakeup_ns),
      FIELD(ProcessBlock, sites),
      FIELD(ProcessBlock, unpublished_streams),
      FIELD(ProcessBlock, optimizer_steps),
      FIELD(ControlBlock, launch_blocking),
      FIELD(DeviceBlock, waits),
      FIELD(DeviceBlock, wait_ns),
      FIELD(DeviceBlock, waiting),
      FIELD(DeviceBlock, waiting_from),
      FIELD(DeviceBlock, memory_total),
      FIELD(DeviceBlock, allocated),
      FIELD(DeviceBlock, allocated_peak),
      FIELD(DeviceBlock, reserved),
      FIELD(DeviceBlock, allocations),
      FIELD(DeviceBlock, alloc_retries),
      FIELD(DeviceBlock, ooms),
      FIELD(DeviceBlock, copy_bytes),
      FIELD(DeviceBlock, sync_violations),
      FIELD(DeviceBlock, sanitizer_reports),
      FIELD(DeviceBlock, sanitizer_bytes),
      FIELD(DeviceBlock, sanitizer_ns),
      FIELD(DeviceBlock, graph_captures),
      FIELD(DeviceBlock, graph_replays),
      FIELD(DeviceBlock, graph_capture_failures),
      FIELD(DeviceBlock, events_created),
      FIELD(DeviceBlock, events_recorded),
      FIELD(DeviceBlock, events_pending),
      FIELD(StreamBlock, state),
      FIELD(StreamBlock, device),
      FIELD(StreamBlock, stream_id),
      FIELD(StreamBlock, capacity),
      FIELD(StreamBlock, thread),
      FIELD(StreamBlock, retired),
      FIELD(StreamBlock, failed),
      FIELD(StreamBlock, dropped),
      FIELD(StreamBlock, parks),
      FIELD(StreamBlock, spins),
      FIELD(StreamBlock, last_retired_ns),
      FIELD(StreamBlock, starved_ns),
      FIELD(StreamBlock, alive),
      FIELD(StreamBlock, idle),
      FIELD(StreamBlock, held),
      FIELD(StreamBlock, held_by),
      FIELD(StreamBlock, held_until),
      FIELD(StreamBlock, woken_ns),
      FIELD(StreamBlock, head_queued_ns),
      FIELD(StreamBlock, errors),
      FIELD(StreamBlock, depth),
      FIELD(StreamBlock, queued_ns),
      FIELD(StreamBlock, latency_ns),
      FIELD(StreamBlock, run_ns),
      FIELD(StreamBlock, capturing),
      FIELD(StreamBlock, bypassed),
      FIELD(StreamBlock, drains),
      FIELD(StreamBlock, drain_ns),
      FIELD(StreamBlock, queued_exemplars),
      FIELD(StreamBlock, latency_exemplars),
      FIELD(StreamBlock, recent),
      FIELD(StreamBlock, failure),
      {"FailureNote.size", sizeof(FailureNote)},
      FIELD(StreamBlock, tail),
      FIELD(StreamBlock, full_waits),
      FIELD(StreamBlock, full_wait_ns),
      FIELD(StreamBlock, full_waiting),
      FIELD(StreamBlock, full_waiting_from),
      FIELD(StreamBlock, deferred_bytes),
      FIELD(StreamBlock, launch_ns),
      FIELD(NameEntry, key),
      FIELD(NameEntry, text),
  };
#undef FIELD
}

}  // namespace

void bind_stats(pybind11::module_& m) {
  name_versions(NPU_DISPATCH_VERSION, TORCH_VERSION);
  m.def("count_optimizer_step", [] {
    if (!initialized()) return;
    // Relaxed: statistics order nothing.
    segment().process.optimizer_steps.fetch_add(1, std::memory_order_relaxed);
  });
  m.def("segment_path", [] { return segment_path(); });
  m.def("segment_layout", &layout);
}

}  // namespace npu
