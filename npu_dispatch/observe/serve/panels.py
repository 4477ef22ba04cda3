"""What the dashboard shows: rows of panels, each with its question and its queries.

In a query NAME{P} stands for the metric npu_dispatch_NAME of the chosen processes, {D}
and {S} for those of the chosen devices and streams, too, and {E} for all exporters of
the cluster. WHO are the labels that tell one process from another, RULES the names of
all alerts, and [R] is the time that rates are taken over.
"""

from __future__ import annotations

from functools import partial
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
_VERDICT = " or ".join(
    f'{code} * process_verdict{{P, kind="{kind}"}}'
    for kind, (code, _) in VERDICTS.items()
)


class Panel(NamedTuple):
    title: str
    kind: str  # of Grafana
    width: int  # of 24
    unit: str
    text: str
    queries: dict[str, str]  # legend: query


def _number(title: str, width: int, text: str, query: str) -> Panel:
    return Panel(title, "stat", width, "none", text, {title.lower(): query})


_WHO = "{{host}} process {{process}} rank {{rank}}"
_DEVICE = "npu:{{device}}"
_CALL = "{{group}} {{collective}}"
_BY_RANK = 'sum by (job_id, WHO) (rate(tasks_completed_total{S, rank!=""}[R]))'


def _lines(
    title: str,
    unit: str,
    text: str,
    queries: str | dict[str, str],
    more: str = "",
    *,
    who: str = _WHO,
    width: int = 12,
) -> Panel:
    """A line for each of `who`, or several, which `more` or the keys tell apart."""
    each = queries if isinstance(queries, dict) else {more: queries}
    legends = {f"{who} {more}".rstrip(): query for more, query in each.items()}
    return Panel(title, "timeseries", width, unit, text, legends)


_exporter = partial(_lines, who="{{instance}}", width=8)


def _share(name: str) -> str:
    """Return the share of time of the stream of each device that has most of it."""
    return f"max by (WHO, device) (rate({name}{{S}}[R]))"


def _quantile(quantile: float, histogram: str) -> str:
    rates = f"sum by (WHO, le) (rate({histogram}_bucket{{D}}[R]))"
    return f"histogram_quantile({quantile}, {rates})"


def _memory(what: str) -> str:
    return f"memory_{what}_bytes{{D}}"


def _per_group(what: str) -> str:
    return f"sum by (WHO, group, collective) (rate(collective_{what}{{P}}[R]))"


def _of_ops(what: str) -> str:
    return f"sum by (op) (increase(op_sampled_{what}_total{{P}}[$__range]))"


ROWS: dict[str, list[Panel]] = {
    "What should I look at?": [
        Panel(
            *("Verdict of each process", "state-timeline", 24, "none"),
            "What holds each process up. Red first; orange and purple cost time; green "
            "is as it should be. The live page of its host has the line to look at.",
            {_WHO: f"max by (WHO) ({_VERDICT})"},
        ),
        _number(
            *("Killed", 3),
            "Processes that died without having ended by themselves, in the time "
            "shown. `npu-dispatch postmortem PID` there says what each was doing.",
            "sum(increase(exporter_processes_killed_total{E}[$__range])) or vector(0)",
        ),
        _number(
            *("Hung", 3),
            "Processes with a stream that has work and makes no progress. "
            "`npu-dispatch dump PID` says where.",
            'sum(process_verdict{P, kind=~"hung|stopped"}) or vector(0)',
        ),
        _number(
            *("Failed", 3),
            "Processes with a stream that refuses work, as a task of it has failed: "
            "the exception is in the trainer's log.",
            'sum(process_verdict{P, kind="failed"}) or vector(0)',
        ),
        _number(
            *("Processes", 3),
            "Processes that are read now.",
            "count(process_info{P}) or vector(0)",
        ),
        Panel(
            *("Alerts that fire", "table", 12, "none"),
            "Of the rules that `npu-dispatch export alerts` gives. What to do about "
            "each is in the documentation.",
            {"": 'ALERTS{alertstate="firing", alertname=~"RULES"}'},
        ),
        Panel(
            *("Which process is which", "table", 24, "none"),
            "The script, process number, rank and job behind each series.",
            {"": "process_info{P}"},
        ),
    ],
    "Launches and queues": [
        _lines(
            *("Launches", "ops"),
            "Tasks that each process gives to its streams.",
            "sum by (WHO) (rate(tasks_enqueued_total{S}[R]))",
        ),
        _lines(
            *("Completed", "ops"),
            "Tasks that have ended.",
            "sum by (WHO) (rate(tasks_completed_total{S}[R]))",
        ),
        _lines(
            *("Fill of the fullest queue", "percentunit"),
            "A full queue is usual where the device is the limit.",
            "max by (WHO, device) (queue_depth{S} / queue_capacity{S})",
            _DEVICE,
        ),
        _lines(
            *("Callers that wait for a full queue", "percentunit"),
            "The share of time in which a thread could not launch.",
            "max by (WHO, device) (rate(enqueue_blocked_seconds_total{S}[R]))",
            _DEVICE,
        ),
        _lines(
            *("What a launch costs its caller", "s"),
            "From an operator's entry until its task is queued, of one call in 16.",
            {f"p{100 * q:.0f}": _quantile(q, "launch_sampled_seconds")
             for q in (0.5, 0.99)},
        ),
        _lines(
            *("From launch to end", "s"),
            "The wait in the queue and the task itself, of one task in 16.",
            {f"p{100 * q:.0f}": _quantile(q, "task_latency_seconds")
             for q in (0.5, 0.99)},
        ),
    ],
    "Device time": [
        _lines(
            *("Busy", "percentunit"),
            "The device computes: as it should be. Each device's busiest stream.",
            _share("stream_busy_seconds_total"),
            _DEVICE,
        ),
        _lines(
            *("Starved", "percentunit"),
            "The device waits for the host's next launch. See `A slow step`.",
            _share("stream_idle_starved_seconds_total"),
            _DEVICE,
        ),
        _lines(
            *("Held, by cause", "percentunit"),
            "Streams wait for one another's events, graphs or copies.",
            "max by (WHO, device, cause) (rate(stream_wait_seconds_total{S}[R]))",
            f"{_DEVICE} {{{{cause}}}}",
        ),
        _lines(
            *("Idle", "percentunit"),
            "Nothing was launched: Python does other work, or waits. Each device's "
            "least idle stream.",
            "min by (WHO, device) (clamp_min(1"
            " - sum by (WHO, device, stream) (rate(stream_busy_seconds_total{S}[R]))"
            " - sum by (WHO, device, stream)"
            " (rate(stream_idle_starved_seconds_total{S}[R]))"
            " - (sum by (WHO, device, stream) (rate(stream_wait_seconds_total{S}[R]))"
            " or 0 * sum by (WHO, device, stream) (queue_capacity{S})), 0))",
            _DEVICE,
        ),
    ],
    "Host waits": [
        _lines(
            *("Time that threads wait, by reason", "percentunit"),
            "1 is one thread that always waits. `item` and `d2h` read results.",
            "sum by (WHO, reason) (rate(host_sync_seconds_total{D}[R])) > 0",
            "{{reason}}",
        ),
        _lines(
            *("Waits, by reason", "ops"),
            "How often; a wait in each step may be one too many.",
            "sum by (WHO, reason) (rate(host_sync_total{D}[R])) > 0",
            "{{reason}}",
        ),
        _lines(
            *("Copies", "Bps"),
            "Between host and device; copies from pinned memory do not stop the host.",
            "sum by (WHO, direction, pinned) (rate(copy_bytes_total{D}[R]))",
            "{{direction}} pinned {{pinned}}",
        ),
        _lines(
            *("Waits where a guard forbids them", "ops"),
            "`torch.npu.set_sync_debug_mode` and no_sync regions count these.",
            "sum by (WHO, reason) (rate(sync_violations_total{D}[R]))",
            "{{reason}}",
        ),
    ],
    "Steps": [
        _lines(
            *("Optimizer steps", "ops"),
            "Ranks of one job that differ here do not train in step.",
            "sum by (WHO) (rate(optimizer_steps_total{P}[R]))",
        ),
        _lines(
            *("Replays of graphs", "ops"),
            "Steps that are launched as a whole.",
            "sum by (WHO, device) (rate(graph_replays_total{D}[R]))",
            _DEVICE,
        ),
        _lines(
            *("Time of a step", "s"),
            "Seconds between two steps of an optimizer.",
            "1 / (sum by (WHO) (rate(optimizer_steps_total{P}[R])) > 0)",
        ),
        Panel(
            *("Slowest rank over fastest", "timeseries", 12, "percentunit"),
            "Tasks completed, of the ranks of each job: near 100 % where they keep up "
            "with one another.",
            {"job {{job_id}}":
             f"min by (job_id) ({_BY_RANK}) / max by (job_id) ({_BY_RANK})"},
        ),
    ],
    "Memory": [
        _lines(
            *("Allocated", "bytes"),
            "What tensors take now, and the most that they took.",
            {_DEVICE: _memory("allocated"),
             f"{_DEVICE} peak": _memory("allocated_peak")},
        ),
        _lines(
            *("Reserved", "bytes"),
            "What the allocator holds, and the most that it may.",
            {_DEVICE: _memory("reserved"), f"{_DEVICE} limit": _memory("limit")},
        ),
        _lines(
            *("Freed, but another stream may use it", "bytes"),
            "Tensors given to `record_stream` wait for that stream.",
            "sum by (WHO, device) (memory_deferred_free_bytes{S})",
            _DEVICE,
        ),
        _lines(
            *("Out of memory", "short"),
            "Allocations that failed, and those that first had to empty the cache.",
            {"failed": "sum by (WHO) (increase(memory_oom_total{D}[R]))",
             "again": "sum by (WHO) (increase(memory_alloc_retries_total{D}[R]))"},
        ),
    ],
    "Collectives": [
        _lines(
            *("Calls", "ops"),
            "Collectives of each group of ranks.",
            _per_group("seconds_count"),
            _CALL,
        ),
        _lines(
            *("Bytes", "Bps"),
            "What a rank gives to its collectives.",
            _per_group("bytes_total"),
            _CALL,
        ),
        _lines(
            *("Mean time of a call", "s"),
            "It includes the wait for the last rank: the rank that is late has the "
            "shortest.",
            f"{_per_group('seconds_sum')} / {_per_group('seconds_count')}",
            _CALL,
        ),
        _lines(
            *("Waiting for other ranks", "percentunit"),
            "How much of the time a call runs that not all ranks have made. The rank "
            "for which the others wait has the least.",
            _per_group("wait_seconds_total"),
            _CALL,
        ),
        _lines(
            *("Exposed", "percentunit"),
            "How much of the time a collective runs and nothing else on its device.",
            _per_group("exposed_seconds_total"),
            _CALL,
        ),
        _lines(
            *("Host waits", "percentunit"),
            "How much of the exposed time the host waits for the device.",
            _per_group("host_wait_seconds_total"),
            _CALL,
        ),
    ],
    "Operators": [
        Panel(
            *("Share of device time", "bargauge", 12, "percentunit"),
            "The fifteen costliest operators in the time shown, by samples. The "
            "service exports them with `--ops N`.",
            {"{{op}}": f"topk(15, {_of_ops('seconds')}"
             f" / scalar(sum({_of_ops('seconds')})))"},
        ),
        Panel(
            *("Mean time of a task", "bargauge", 12, "s"),
            "Of the same samples: one task in 16 is timed.",
            {"{{op}}": f"topk(15, {_of_ops('seconds')} / {_of_ops('tasks')})"},
        ),
    ],
    "Correctness": [
        _lines(
            *("Races", "short"),
            "What the sanitizer has found, in all. See `Find a race`.",
            "sum by (WHO, kind) (sanitizer_reports_total{D})",
            "{{kind}}",
        ),
        _lines(
            *("Failed tasks", "short"),
            "In all, by what they failed with.",
            "sum by (WHO, code) (async_errors_total{D})",
            "{{code}}",
        ),
    ],
    "Exporter": [
        _exporter(
            *("CPU", "percentunit"),
            "Of one core, that the exporter itself takes.",
            {"": "rate(exporter_process_cpu_seconds_total{E}[R])"},
        ),
        _exporter(
            *("Memory", "bytes"),
            "That the exporter itself takes.",
            {"": "exporter_process_resident_memory_bytes{E}"},
        ),
        _exporter(
            *("A scrape takes", "s"),
            "Reading the counters and writing them as text.",
            {"": "exporter_scrape_duration_seconds{E}"},
        ),
        _exporter(
            *("Segments", "short"),
            "Processes whose counters are there; unreadable ones are of another "
            "version or user.",
            {"read": "exporter_segments{E}",
             "unreadable": "exporter_segments_stale{E}"},
        ),
        _exporter(
            *("Age of the last reading", "s"),
            "More than a few intervals: the exporter has too little CPU.",
            {"": "time() - last_reading_timestamp_seconds{E}"},
        ),
        _exporter(
            *("Requests", "reqps"),
            "By route and answer.",
            {"{{route}} {{status}}":
             "sum by (instance, route, status) (rate(http_requests_total{E}[R]))"},
        ),
    ],
}  # fmt: skip
