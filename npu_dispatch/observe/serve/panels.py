"""What the dashboard shows: rows of panels, each with its question and its queries.

A line with `#` begins a row. A panel has its title, its kind and width (of 24) in
Grafana, and the unit; then a text, and each query behind its legend. In a query NAME{P}
stands for the metric npu_dispatch_NAME of the chosen processes, {D} and {S} for those
of the chosen devices and streams, too, and {E} for all exporters of the cluster. WHO
are the labels that tell one process from another, VERDICT is the number of its verdict,
RULES are the names of all alerts, and [R] is the time that rates are taken over.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# What each verdict is on the chart of verdicts: the worst has the highest number.
VERDICTS = {
    "idle": (0, "text"),
    "quiet": (1, "text"),
    "device-bound": (2, "green"),
    "host-bound": (3, "yellow"),
    "launch-bound": (4, "orange"),
    "held": (5, "purple"),
    "waiting": (6, "purple"),
    "blocked": (7, "purple"),
    "failed": (8, "red"),
    "hung": (9, "dark-red"),
    "stopped": (10, "dark-red"),
}


class Panel(NamedTuple):
    title: str
    kind: str
    width: int
    unit: str
    text: str
    queries: dict[str, str]  # by legend


def _panel(text: str) -> Panel:
    # What is further right belongs to the line before.
    head, *lines = re.sub(r"\n {4}", " ", text).splitlines()
    title, kind, width, unit = head.split(" | ")
    queries = (line.split("= ", 1) for line in lines if "= " in line)
    return Panel(
        *(title, kind, int(width), unit),
        " ".join(line.strip() for line in lines if "= " not in line),
        {legend.strip().replace("WHO", _WHO): query for legend, query in queries},
    )


def _rows(text: str) -> dict[str, list[Panel]]:
    rows = (row.partition("\n") for row in text.split("\n# ")[1:])
    return {
        title: [_panel(panel) for panel in re.split(r"\n(?=\w)", panels.strip())]
        for title, _, panels in rows
    }


_WHO = "{{host}} process {{process}} rank {{rank}}"
ROWS = _rows(
    """
# What should I look at?
Verdict of each process | state-timeline | 24 | none
  What holds each process up. Red first; orange and purple cost time; green is as it
  should be. The live page of its host has the line to look at.
  WHO = max by (WHO) (VERDICT)
Killed | stat | 3 | none
  Processes that died without having ended by themselves, in the time shown.
  `npu-dispatch postmortem PID` there says what each was doing.
  killed = sum(increase(exporter_processes_killed_total{E}[$__range])) or vector(0)
Hung | stat | 3 | none
  Processes with a stream that has work and makes no progress. `npu-dispatch dump PID`
  says where.
  hung = sum(process_verdict{P, kind=~"hung|stopped"}) or vector(0)
Failed | stat | 3 | none
  Processes with a stream that refuses work, as a task of it has failed: the exception
  is in the trainer's log.
  failed = sum(process_verdict{P, kind="failed"}) or vector(0)
Processes | stat | 3 | none
  Processes that are read now.
  processes = count(process_info{P}) or vector(0)
Alerts that fire | table | 12 | none
  Of the rules that `npu-dispatch export alerts` gives. What to do about each is in
  the documentation.
  = ALERTS{alertstate="firing", alertname=~"RULES"}
Which process is which | table | 24 | none
  The script, process number, rank and job behind each series.
  = process_info{P}
# Launches and queues
Launches | timeseries | 12 | ops
  Tasks that each process gives to its streams.
  WHO = sum by (WHO) (rate(tasks_enqueued_total{S}[R]))
Completed | timeseries | 12 | ops
  Tasks that have ended.
  WHO = sum by (WHO) (rate(tasks_completed_total{S}[R]))
Fill of the fullest queue | timeseries | 12 | percentunit
  A full queue is usual where the device is the limit.
  WHO npu:{{device}} = max by (WHO, device) (queue_depth{S} / queue_capacity{S})
Callers that wait for a full queue | timeseries | 12 | percentunit
  The share of time in which a thread could not launch.
  WHO npu:{{device}} = max by (WHO, device)
    (rate(enqueue_blocked_seconds_total{S}[R]))
What a launch costs its caller | timeseries | 12 | s
  From an operator's entry until its task is queued, of one call in 16.
  WHO p50 = histogram_quantile(0.5, sum by (WHO, le)
    (rate(launch_sampled_seconds_bucket{D}[R])))
  WHO p99 = histogram_quantile(0.99, sum by (WHO, le)
    (rate(launch_sampled_seconds_bucket{D}[R])))
From launch to end | timeseries | 12 | s
  The wait in the queue and the task itself, of one task in 16.
  WHO p50 = histogram_quantile(0.5, sum by (WHO, le)
    (rate(task_latency_seconds_bucket{D}[R])))
  WHO p99 = histogram_quantile(0.99, sum by (WHO, le)
    (rate(task_latency_seconds_bucket{D}[R])))
# Device time
Busy | timeseries | 12 | percentunit
  The device computes: as it should be. Each device's busiest stream.
  WHO npu:{{device}} = max by (WHO, device) (rate(stream_busy_seconds_total{S}[R]))
Starved | timeseries | 12 | percentunit
  The device waits for the host's next launch. See `A slow step`.
  WHO npu:{{device}} = max by (WHO, device)
    (rate(stream_idle_starved_seconds_total{S}[R]))
Held, by cause | timeseries | 12 | percentunit
  Streams wait for one another's events, graphs or copies.
  WHO npu:{{device}} {{cause}} = max by (WHO, device, cause)
    (rate(stream_wait_seconds_total{S}[R]))
Idle | timeseries | 12 | percentunit
  Nothing was launched: Python does other work, or waits. Each device's least idle
  stream.
  WHO npu:{{device}} = min by (WHO, device) (clamp_min(1 - sum by (WHO, device,
    stream) (rate(stream_busy_seconds_total{S}[R])) - sum by (WHO, device, stream)
    (rate(stream_idle_starved_seconds_total{S}[R])) - (sum by (WHO, device, stream)
    (rate(stream_wait_seconds_total{S}[R])) or 0 * sum by (WHO, device, stream)
    (queue_capacity{S})), 0))
# Host waits
Time that threads wait, by reason | timeseries | 12 | percentunit
  1 is one thread that always waits. `item` and `d2h` read results.
  WHO {{reason}} = sum by (WHO, reason) (rate(host_sync_seconds_total{D}[R])) > 0
Waits, by reason | timeseries | 12 | ops
  How often; a wait in each step may be one too many.
  WHO {{reason}} = sum by (WHO, reason) (rate(host_sync_total{D}[R])) > 0
Copies | timeseries | 12 | Bps
  Between host and device; copies from pinned memory do not stop the host.
  WHO {{direction}} pinned {{pinned}} = sum by (WHO, direction, pinned)
    (rate(copy_bytes_total{D}[R]))
Waits where a guard forbids them | timeseries | 12 | ops
  `torch.npu.set_sync_debug_mode` and no_sync regions count these.
  WHO {{reason}} = sum by (WHO, reason) (rate(sync_violations_total{D}[R]))
# Steps
Optimizer steps | timeseries | 12 | ops
  Ranks of one job that differ here do not train in step.
  WHO = sum by (WHO) (rate(optimizer_steps_total{P}[R]))
Replays of graphs | timeseries | 12 | ops
  Steps that are launched as a whole.
  WHO npu:{{device}} = sum by (WHO, device) (rate(graph_replays_total{D}[R]))
Time of a step | timeseries | 12 | s
  Seconds between two steps of an optimizer.
  WHO = 1 / (sum by (WHO) (rate(optimizer_steps_total{P}[R])) > 0)
Slowest rank over fastest | timeseries | 12 | percentunit
  Tasks completed, of the ranks of each job: near 100 % where they keep up with one
  another.
  job {{job_id}} = min by (job_id) (sum by (job_id, WHO)
    (rate(tasks_completed_total{S, rank!=""}[R]))) / max by (job_id) (sum by
    (job_id, WHO) (rate(tasks_completed_total{S, rank!=""}[R])))
# Memory
Allocated | timeseries | 12 | bytes
  What tensors take now, and the most that they took.
  WHO npu:{{device}} = memory_allocated_bytes{D}
  WHO npu:{{device}} peak = memory_allocated_peak_bytes{D}
Reserved | timeseries | 12 | bytes
  What the allocator holds, and the most that it may.
  WHO npu:{{device}} = memory_reserved_bytes{D}
  WHO npu:{{device}} limit = memory_limit_bytes{D}
Freed, but another stream may use it | timeseries | 12 | bytes
  Tensors given to `record_stream` wait for that stream.
  WHO npu:{{device}} = sum by (WHO, device) (memory_deferred_free_bytes{S})
Out of memory | timeseries | 12 | short
  Allocations that failed, and those that first had to empty the cache.
  WHO failed = sum by (WHO) (increase(memory_oom_total{D}[R]))
  WHO again = sum by (WHO) (increase(memory_alloc_retries_total{D}[R]))
# Collectives
Calls | timeseries | 12 | ops
  Collectives of each group of ranks.
  WHO {{group}} {{collective}} = sum by (WHO, group, collective)
    (rate(collective_seconds_count{P}[R]))
Bytes | timeseries | 12 | Bps
  What a rank gives to its collectives.
  WHO {{group}} {{collective}} = sum by (WHO, group, collective)
    (rate(collective_bytes_total{P}[R]))
Mean time of a call | timeseries | 12 | s
  It includes the wait for the last rank: the rank that is late has the shortest.
  WHO {{group}} {{collective}} = sum by (WHO, group, collective)
    (rate(collective_seconds_sum{P}[R])) / sum by (WHO, group, collective)
    (rate(collective_seconds_count{P}[R]))
Waiting for other ranks | timeseries | 12 | percentunit
  How much of the time a call runs that not all ranks have made. The rank for which
  the others wait has the least.
  WHO {{group}} {{collective}} = sum by (WHO, group, collective)
    (rate(collective_wait_seconds_total{P}[R]))
Exposed | timeseries | 12 | percentunit
  How much of the time a collective runs and nothing else on its device.
  WHO {{group}} {{collective}} = sum by (WHO, group, collective)
    (rate(collective_exposed_seconds_total{P}[R]))
Host waits | timeseries | 12 | percentunit
  How much of the exposed time the host waits for the device.
  WHO {{group}} {{collective}} = sum by (WHO, group, collective)
    (rate(collective_host_wait_seconds_total{P}[R]))
# Operators
Share of device time | bargauge | 12 | percentunit
  The fifteen costliest operators in the time shown, by samples. The service exports
  them with `--ops N`.
  {{op}} = topk(15, sum by (op) (increase(op_sampled_seconds_total{P}[$__range])) /
    scalar(sum(sum by (op) (increase(op_sampled_seconds_total{P}[$__range])))))
Mean time of a task | bargauge | 12 | s
  Of the same samples: one task in 16 is timed.
  {{op}} = topk(15, sum by (op) (increase(op_sampled_seconds_total{P}[$__range])) /
    sum by (op) (increase(op_sampled_tasks_total{P}[$__range])))
# Correctness
Races | timeseries | 12 | short
  What the sanitizer has found, in all. See `Find a race`.
  WHO {{kind}} = sum by (WHO, kind) (sanitizer_reports_total{D})
Failed tasks | timeseries | 12 | short
  In all, by what they failed with.
  WHO {{code}} = sum by (WHO, code) (async_errors_total{D})
# Exporter
CPU | timeseries | 8 | percentunit
  Of one core, that the exporter itself takes.
  {{instance}} = rate(exporter_process_cpu_seconds_total{E}[R])
Memory | timeseries | 8 | bytes
  That the exporter itself takes.
  {{instance}} = exporter_process_resident_memory_bytes{E}
A scrape takes | timeseries | 8 | s
  Reading the counters and writing them as text.
  {{instance}} = exporter_scrape_duration_seconds{E}
Segments | timeseries | 8 | short
  Processes whose counters are there; unreadable ones are of another version or user.
  {{instance}} read = exporter_segments{E}
  {{instance}} unreadable = exporter_segments_stale{E}
Age of the last reading | timeseries | 8 | s
  More than a few intervals: the exporter has too little CPU.
  {{instance}} = time() - last_reading_timestamp_seconds{E}
Requests | timeseries | 8 | reqps
  By route and answer.
  {{instance}} {{route}} {{status}} = sum by (instance, route, status)
    (rate(http_requests_total{E}[R]))
"""
)
