"""The alert rules, in Prometheus."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from prometheus_server import alert_names, exported, prometheus_tool

N = "npu_dispatch_"
S = 'job="npu_dispatch",instance="a",device="0",stream="0"'
D = 'job="npu_dispatch",instance="a",device="0"'
ALIVE = {
    f'{N}build_info{{job="npu_dispatch"}}': "1x240",
    'up{job="npu_dispatch"}': "1x240",
}
# What brings each alert about: series, one value every 15 s, for an hour.
CAUSES: dict[str, dict[str, str]] = {
    "StreamStalled": {f"{N}oldest_task_enqueued_timestamp_seconds{{{S}}}": "0x240"},
    "NoProgress": {
        f"{N}queue_depth{{{S}}}": "5x240",
        f'{N}tasks_completed_total{{{S},status="ok"}}': "7x240",
    },
    "ConsumerDead": {f"{N}consumer_heartbeat_timestamp_seconds{{{S}}}": "0x240"},
    "QueueSaturated": {
        f"{N}queue_depth{{{S}}}": "4000x240",
        f"{N}queue_capacity{{{S}}}": "4096x240",
    },
    "ProducerBlocked": {f"{N}enqueue_blocked_seconds_total{{{S}}}": "0+1x240"},
    "LaunchBound": {f"{N}stream_idle_starved_seconds_total{{{S}}}": "0+6x240"},
    "LaunchSLO": {
        f'{N}launch_overhead_seconds_bucket{{{D},le="1.6e-05"}}': "0x240",
        f'{N}launch_overhead_seconds_bucket{{{D},le="3.2e-05"}}': "0+9x240",
        f'{N}launch_overhead_seconds_bucket{{{D},le="+Inf"}}': "0+9x240",
    },
    "SyncTax": {f'{N}host_sync_seconds_total{{{D},reason="item"}}': "0+6x240"},
    "SyncInGuardedRegion": {f"{N}sync_violations_total{{{D}}}": "0+1x240"},
    "DataRace": {f'{N}sanitizer_reports_total{{{D},kind="race_ww"}}': "0+1x240"},
    "AsyncError": {f'{N}async_errors_total{{{S},code="error"}}': "0+1x240"},
    "StreamPoisoned": {f"{N}stream_error_state{{{S}}}": "1x240"},
    "RankStraggler": {
        f'{N}tasks_completed_total{{{S},local_rank="{rank}"}}': f"0+{step}x240"
        for rank, step in ((0, 100), (1, 100), (2, 10))
    },
    "DeferredFree": {
        f"{N}memory_deferred_free_bytes{{{S}}}": "30x240",
        f"{N}memory_limit_bytes{{{D}}}": "100x240",
    },
    "NearOOM": {
        f"{N}memory_reserved_bytes{{{D}}}": "99x240",
        f"{N}memory_limit_bytes{{{D}}}": "100x240",
    },
    "LoopLag": {
        f'{N}event_loop_lag_seconds_bucket{{{D},le="0.1"}}': "0x240",
        f'{N}event_loop_lag_seconds_bucket{{{D},le="1.0"}}': "0+1x240",
        f'{N}event_loop_lag_seconds_bucket{{{D},le="+Inf"}}': "0+1x240",
    },
    "SnapshotStale": {f"{N}snapshot_timestamp_seconds{{{D}}}": "0x240"},
    "Absent": {f"{N}build_info{{job='npu_dispatch'}}": "_x240"},
    "TargetDown": {'up{job="npu_dispatch"}': "0x240"},
    "TraceDrop": {f"{N}trace_events_dropped_total{{{D}}}": "0+1x240"},
}
# Just below each threshold: nothing fires.
QUIET = {
    f"{N}queue_depth{{{S}}}": "3000x240",
    f"{N}queue_capacity{{{S}}}": "4096x240",
    f'{N}tasks_completed_total{{{S},status="ok"}}': "0+1x240",
    f"{N}oldest_task_enqueued_timestamp_seconds{{{S}}}": "0+15x240",
    f"{N}consumer_heartbeat_timestamp_seconds{{{S}}}": "0+15x240",
    f"{N}snapshot_timestamp_seconds{{{D}}}": "0+15x240",
    f"{N}enqueue_blocked_seconds_total{{{S}}}": "0+0.7x240",
    f"{N}stream_idle_starved_seconds_total{{{S}}}": "0+4x240",
    f'{N}host_sync_seconds_total{{{D},reason="item"}}': "0+2x240",
    f"{N}memory_deferred_free_bytes{{{S}}}": "19x240",
    f"{N}memory_reserved_bytes{{{D}}}": "94x240",
    f"{N}memory_limit_bytes{{{D}}}": "100x240",
    f'{N}async_errors_total{{{S},code="error"}}': "3x240",
    f"{N}stream_error_state{{{S}}}": "0x240",
}


def test_every_alert_has_a_cause_here():
    assert alert_names() == set(CAUSES)


def test_each_alert_fires_for_its_cause_and_nothing_else_does(tmp_path: Path):
    (tmp_path / "alerts.yml").write_text(exported("alerts"))

    def case(name: str, series: dict[str, str], firing: list[str]) -> dict[str, Any]:
        merged = {**ALIVE, **series}
        if name == "Absent":
            merged = {**series, "up": "1x240"}
        samples = [{"labels": f'{{alertname="{a}"}}', "value": 1} for a in firing]
        return {
            "interval": "15s",
            "name": name,
            "input_series": [{"series": s, "values": v} for s, v in merged.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "55m",
                    "exp_samples": samples,
                }
            ],
        }

    cases = [case(name, series, [name]) for name, series in CAUSES.items()]
    tests = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "15s",
        "tests": [*cases, case("quiet", QUIET, [])],
    }
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(tests))

    done = subprocess.run(
        [prometheus_tool("promtool"), "test", "rules", str(file)],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
