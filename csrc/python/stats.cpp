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

// EACH(ITEM, of, a, b) is ITEM(of, a), ITEM(of, b), with up to 64 of them.
#define AGAIN(...) AGAIN_3(AGAIN_3(AGAIN_3(AGAIN_3(__VA_ARGS__))))
#define AGAIN_3(...) AGAIN_2(AGAIN_2(AGAIN_2(AGAIN_2(__VA_ARGS__))))
#define AGAIN_2(...) AGAIN_1(AGAIN_1(AGAIN_1(AGAIN_1(__VA_ARGS__))))
#define AGAIN_1(...) __VA_ARGS__
#define NO_ARGUMENTS ()
#define EACH(ITEM, of, ...) AGAIN(FIRST(ITEM, of, __VA_ARGS__))
#define FIRST(ITEM, of, name, ...) \
  ITEM(of, name) __VA_OPT__(, REST NO_ARGUMENTS(ITEM, of, __VA_ARGS__))
#define REST() FIRST

#define VALUE(of, name) {#name, size_t(name)}
#define SIZE(of, type) {#type ".size", sizeof(type)}
#define FIELD(type, name) {#type "." #name, offsetof(type, name)}

std::map<std::string, size_t> layout() {
  return {
      EACH(VALUE, , kLayoutVersion, kExtensionAt, kDepthBuckets, kTimeBuckets,
           kSamplePeriod, kErrorCodes, kMaxNames, kMaxSites, kReportKinds,
           kRecentTasks, kExemplarOctaves, kMaxOpenWaits,
           kCollectiveLogVersion),
      {"kWaitReasons", size_t(WaitReason::kCount)},
      {"kBypasses", size_t(Bypass::kCount)},
      {"kHolds", size_t(Hold::kCount)},
      {"kWorks", size_t(Work::kCount)},
      {"kCaptureFailures", size_t(CaptureFailure::kCount)},
      EACH(SIZE, , SegmentHeader, DeviceBlock, StreamBlock, NameEntry,
           SiteEntry, Exemplars, RecentTask, OpenWait, CollectiveEntry,
           CollectiveGroup, CollectiveLog, CollectiveTotals, HostPlace,
           FailureNote),
      EACH(FIELD, SiteEntry, waits, tasks, text),
      EACH(FIELD, OpenWait, owner, until),
      EACH(FIELD, Segment, process, control, waits, devices, streams, names,
           sites),
      EACH(FIELD, CollectiveEntry, shapes),
      EACH(FIELD, CollectiveGroup, name, ranks),
      EACH(FIELD, CollectiveLog, next, groups, log, totals, host),
      EACH(FIELD, CollectiveTotals, run_ns),
      EACH(FIELD, SegmentHeader, pid, process_start, monotonic_ns, realtime_ns,
           pid_namespace, rank, local_rank, world_size, job_id, pod, package,
           command, stack_start),
      EACH(FIELD, ProcessBlock, sanitizer_enabled, trace_dropped, async_waiters,
           async_wakeup_ns, sites, unpublished_streams, optimizer_steps),
      EACH(FIELD, ControlBlock, launch_blocking),
      EACH(FIELD, DeviceBlock, waits, wait_ns, waiting, waiting_from,
           memory_total, allocated, allocated_peak, reserved, allocations,
           alloc_retries, ooms, copy_bytes, sync_violations, sanitizer_reports,
           sanitizer_bytes, sanitizer_ns, graph_captures, graph_replays,
           graph_capture_failures, events_created, events_recorded,
           events_pending),
      EACH(FIELD, StreamBlock, state, device, stream_id, capacity, thread,
           retired, failed, dropped, parks, spins, last_retired_ns, starved_ns,
           alive, idle, held, held_by, held_until, woken_ns, head_queued_ns,
           errors, depth, queued_ns, latency_ns, run_ns, capturing, bypassed,
           drains, drain_ns, queued_exemplars, latency_exemplars, recent,
           failure, tail, full_waits, full_wait_ns, full_waiting,
           full_waiting_from, deferred_bytes, call_ns, launch_ns),
      EACH(FIELD, NameEntry, key, text)};
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
