#include "csrc/taskqueue/task_notes.h"

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/observe/trace.h"
#include "csrc/observe/work_names.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

const char* name_of(const Task& task) {
  if (task.kernel) return task.kernel->name;
  return task.marks.kind == TaskKind::kTimestamp ? kRecordName : kWaitName;
}

namespace {

uint32_t trace_line(uint32_t site) {
  const char* const text = site_text(site);
  return text ? trace_name(text) : kNoTraceName;
}

}  // namespace

TaskNotes::TaskNotes(Stream& stream)
    : stream_(stream), ns_per_tick_(ns_per_tick()) {}

TaskNotes::Running TaskNotes::begins(const Task& task, uint64_t position,
                                     uint64_t begun) {
  if (is_sampled(position, kDepthPeriod))
    stream_.block().depth.add(stream_.tail() - position);
  // ticks() says that the readings of two threads may be out of order. Readers
  // of traces and profiles count on their order.
  begun = std::max({begun, task.stamp, last_end_});
  const auto waited =
      uint64_t(double(ticks_between(task.stamp, begun)) * ns_per_tick_);
  // Relaxed: statistics order nothing.
  stream_.block().head_queued_ns.store(clock_.ns(ticks()) - waited,
                                       std::memory_order_relaxed);
  return {{position, name_of(task), task.stamp, begun, 0},
          task.marks.launch_ticks,
          task.site,
          is_work(task) && !stream_.failed()};
}

void TaskNotes::ends(const Task& task, Running& running, uint64_t ended) {
  running.ended = last_end_ = std::max(ended, running.started);
  if (running.told) tell_observers(&Observer::ran, stream_, running);
  trace(task, running);
}

uint64_t TaskNotes::count(const Running& running) {
  StreamBlock& block = stream_.block();
  const uint64_t now = clock_.ns(ticks());
  const auto ns = [this](uint64_t ticks) {
    return uint64_t(double(ticks) * ns_per_tick_);
  };
  const uint64_t queued = ns(ticks_between(running.submitted, running.started));
  const uint64_t ran = ns(ticks_between(running.started, running.ended));
  const uint64_t latency = queued + ran;
  block.launch_ns.add(ns(running.launch_ticks));
  block.queued_ns.add(queued);
  block.latency_ns.add(latency);
  block.latency_exemplars.note(running.position, latency, now);
  block.queued_exemplars.note(running.position, queued, now);
  block.run_ns[int(work_of(running.name))].add(ran);
  count_name(running.name, ran);
  count_task_at(running.site, ran);
  // Relaxed: statistics order nothing.
  block.last_retired_ns.store(now, std::memory_order_relaxed);
  return now;
}

void TaskNotes::trace(const Task& task, const Running& running) {
  TraceRing* const ring = stream_.trace_ring();
  const bool wanted = trace_wanted();
  if (!ring) [[likely]] {
    if (wanted) [[unlikely]]
      stream_.set_traced(true);
    return;
  }
  if (!wanted) return stream_.set_traced(false);
  TraceRecord record{};
  record.position = running.position;
  record.submitted = running.submitted;
  record.started = running.started;
  record.ended = running.ended;
  record.depth = uint32_t(stream_.tail() - running.position);
  record.kind = uint8_t(task.marks.kind);
  record.name = trace_name(running.name);
  record.line = trace_line(task.site);
  if (task.marks.kind == TaskKind::kWait) {
    const Stream& other = *reinterpret_cast<Stream*>(task.words()[0]);
    record.other_device = int16_t(other.device());
    record.other_stream = other.id();
    record.other_number = task.words()[1];
  }
  if (stream_.failed()) {
    const auto error = stream_.error();
    record.outcome = uint8_t(error && error->task == running.position
                                 ? TraceOutcome::kFailed
                                 : TraceOutcome::kDropped);
  }
  if (!add(*ring, record))
    segment().process.trace_dropped.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace npu
