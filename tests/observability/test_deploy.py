"""The alert rules, in Prometheus: over many hosts, scraped every 15 seconds."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml
from click.testing import CliRunner
from prometheus_server import (
    alert_names,
    exported,
    prometheus_tool,
    promtool,
    promtool_case,
)

from npu_dispatch.cli import main
from npu_dispatch.observe.judge.verdict import KINDS

N = "npu_dispatch_"
Series = dict[str, str]


def of_rank(host: str, rank: int) -> str:
    return (
        f'job="any name",instance="{host}:9401",process="{rank}",rank="{rank}",'
        f'local_rank="{rank}",job_id="7"'
    )


def process(
    host: str,
    rank: int,
    kind: str = "device-bound",
    *,
    script: str = "train.py",
    line: str = "",
    **more: str,
) -> Series:
    """Return what a rank of a job on a host exports, and nothing is wrong with it.

    `line`: that of its verdict.
    """
    p = of_rank(host, rank)
    d, s = f'{p},device="0"', f'{p},device="0",stream="0"'
    made = {
        info(host, rank, script): "1x240",
        f"{N}snapshot_timestamp_seconds{{{p}}}": "0+15x240",
        f"{N}consumer_heartbeat_timestamp_seconds{{{s}}}": "0+15x240",
        f"{N}queue_depth{{{s}}}": "8000x240",  # full, as is usual of a device-bound one
        f"{N}queue_capacity{{{s}}}": "8192x240",
        f'{N}async_errors_total{{{d},code="error"}}': "0x240",
        f"{N}memory_allocated_bytes{{{d}}}": "94x240",
        f"{N}memory_limit_bytes{{{d}}}": "100x240",
        f"{N}memory_deferred_free_bytes{{{s}}}": "19x240",
        f"{N}collective_wait_seconds_total{{{p},{GROUP}}}": "0+4x240",
    }
    for each in KINDS:
        value = "1x240" if each == kind else "0x240"
        made[f'{N}process_verdict{{{p},kind="{each}"}}'] = value
    if line:
        made[f'{N}process_line_info{{{p},kind="{kind}",line="{line}"}}'] = "1x240"
    for name, values in more.items():
        labels = {"P": p, "D": d, "S": s, "G": f"{p},{GROUP}"}[name[0]]
        metric, _, label = name[2:].partition("__")
        kind_of, _, value = label.partition("__")
        labels += f',{kind_of}="{value.replace("_", "-")}"' if label else ""
        made[f"{N}{metric}{{{labels}}}"] = values
    return made


def info(host: str, rank: int, script: str = "train.py") -> str:
    p, pid = of_rank(host, rank), 1000 + rank
    return f'{N}process_info{{{p},pid="{pid}",name="{script}",user="ada"}}'


GROUP = 'group="default_pg",group_token="01234567"'


def host(name: str, *processes: Series, **more: str) -> Series:
    """Return what an exporter exports."""
    t = f'job="any name",instance="{name}:9401"'
    made = {
        f"up{{{t}}}": "1x240",
        f'{N}build_info{{{t},version="1"}}': "1x240",
        f"{N}exporter_processes_killed_total{{{t}}}": "2x240",
        f"{N}exporter_segments_stale{{{t}}}": "0x240",
        f"{N}exporter_scrape_duration_seconds{{{t}}}": "0.2x240",
    }
    for metric, values in more.items():
        name = "up" if metric == "up" else f"{N}{metric}"
        at = next(key for key in made if key.startswith(f"{name}{{"))
        made[at] = values
    return made | {key: value for each in processes for key, value in each.items()}


WELL = {
    # A job of two hosts, an idle machine, and one whose processes have ended.
    **host("a", process("a", 0), process("a", 1)),
    **host("b", process("b", 2), process("b", 3)),
    **host("idle"),
    **host(
        "ended",
        *[
            {
                key: f"{value.removesuffix('x240')}x99 stale"
                for key, value in process("ended", rank).items()
            }
            for rank in (4, 5)
        ],
    ),
}


# What brings each alert about: series, one value every 15 s, for an hour. The first
# half of each is well.
CAUSES: dict[str, Series] = {
    "NpuProcessHung": process("b", 2, "hung", line="train.py:7 in step"),
    "NpuStreamPoisoned": process(
        "a", 1, **{"S_stream_error_state__line__loss.py:3": "_x120 1x119"}
    ),
    "NpuLaunchThreadDead": process(
        "a", 1, S_consumer_heartbeat_timestamp_seconds="0+15x120 1800x119"
    ),
    "NpuDataRace": process(
        "a", 1, D_sanitizer_reports_total__kind__race_ww="_x200 1x39"
    ),
    "NpuSyncInGuardedRegion": process(
        "a", 1, D_sync_violations_total__reason__item="_x200 2x39"
    ),
    "NpuAsyncError": process(
        "a",
        1,
        D_async_errors_total__code__error="3x210 4x29",
        # The program clears it soon.
        **{"S_stream_error_state__line__loss.py:3": "_x210 1 stale"},
    ),
    "NpuNearOOM": process("a", 1, D_memory_allocated_bytes="96x240"),
    "NpuDeferredFree": process("a", 1, S_memory_deferred_free_bytes="21x240"),
    # It waits for nobody, and three others for it.
    "NpuRankStraggler": process("b", 2, G_collective_wait_seconds_total="0x240"),
    "NpuTrainerQuiet": process(
        "b",
        3,
        "quiet",
        line="data.py:8",
        P_optimizer_steps_total="0+9x120 1080x119",
    ),
    "NpuHostBlocked": process("b", 3, "blocked", line="train.py:9 in step"),
    "NpuLaunchBound": process("b", 3, "launch-bound"),
    "NpuTraceDrop": process("b", 3, P_trace_events_dropped_total="0+9x240"),
    "NpuProcessKilled": host("a", exporter_processes_killed_total="2x210 3x29")
    | {
        f'{N}exporter_killed_process_info{{job="any name",instance="a:9401",'
        f'pid="{pid}",name="train.py",user="ada",line="train.py:{pid}"}}': "_x210 1x29"
        for pid in (5, 6)
    },
    "NpuTargetDown": host("a", up="1x200 0x39"),
    "NpuSegmentsUnreadable": host("a", exporter_segments_stale="1x240"),
    "NpuExporterSlow": host("a", exporter_scrape_duration_seconds="3x240"),
}
LINES = {
    "NpuProcessHung": "at train.py:7 in step;",
    "NpuStreamPoisoned": "launched at loss.py:3.",
    "NpuAsyncError": "launched at loss.py:3.",
    "NpuTrainerQuiet": "the last time at data.py:8;",
    "NpuHostBlocked": "most often at train.py:9 in step;",
}
# Those about an exporter.
OF_EXPORTERS = {
    "NpuProcessKilled": (
        "train.py (PID 5, user ada) at train.py:5, ",
        "train.py (PID 6, user ada) at train.py:6, ",
        ", killed on a:9401;",
    ),
    "NpuTargetDown": ("train.py (PID 1000)", "train.py (PID 1001)"),
    "NpuSegmentsUnreadable": ("1 processes on a:9401",),
    "NpuExporterSlow": ("on a:9401",),
}
# What is not right, but lasts too short, or has another cause.
NOT_YET: dict[str, Series] = {
    # Verdicts at single scrapes.
    "a moment of each": {
        key: "0x100 1 0x139"
        for key in process("a", 0, "none")
        if "process_verdict" in key
    },
    "busy and waiting": {
        key: "0x3 1 " * 48 + "0x47"
        for key in process("a", 0, "none")
        if "process_verdict" in key and ("blocked" in key or "launch" in key)
    },
    # The exporter was away for a while: an age would grow, these two stand together.
    "an exporter that was away": process(
        "a",
        1,
        S_consumer_heartbeat_timestamp_seconds="0+15x120 1800x20 2100+15x98",
        P_snapshot_timestamp_seconds="0+15x120 1800x20 2100+15x98",
    ),
    # Its group has the same name, and another token.
    "another job that waits for nobody": {
        key.replace("01234567", "89abcdef"): "0x240"
        for key in process("b", 4, G_collective_wait_seconds_total="0x240")
        if "collective" in key
    },
    "a server without requests": {
        **process("b", 3, "quiet"),
        info("b", 3): "_x240",
        info("b", 3).replace(',rank="3",local_rank="3"', ""): "1x240",
    },
    "a notebook whose user reads": {
        info("b", 3): "_x240",
        **process(
            "b",
            3,
            "quiet",
            script="-m ipykernel_launcher",
            P_optimizer_steps_total="9x240",
        ),
    },
    "a target that never was an exporter": {
        'up{job="node",instance="a:9100"}': "0x240"
    },
}


def judge(folder: Path, *cases: tuple[str, Series, dict[str, list[str]]]) -> None:
    """Compare which alerts fire at which times: of each name, with what is so ill."""
    (folder / "alerts.yml").write_text(exported("alerts"))
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    tests = [
        promtool_case(
            query,
            WELL | ill,
            {
                at: {f'{{alertname="{alert}"}}': 1 for alert in firing}
                for at, firing in expected.items()
            },
            name,
        )
        for name, ill, expected in cases
    ]
    given = {"rule_files": ["alerts.yml"], "evaluation_interval": "15s", "tests": tests}
    promtool(folder, "test", "rules", given=given)


def test_every_alert_has_a_cause_here():
    assert alert_names() == set(CAUSES)


def test_each_alert_fires_for_its_cause_and_nothing_else_does(tmp_path: Path):
    judge(tmp_path, *((name, ill, {"55m": [name]}) for name, ill in CAUSES.items()))


def texts(folder: Path, causes: dict[str, Series]) -> dict[str, tuple[str, str]]:
    """Return the summary and the description of each alert for its cause."""
    (folder / "alerts.yml").write_text(exported("alerts"))
    tests = [
        {
            "interval": "15s",
            "input_series": [
                {"series": s, "values": v} for s, v in (WELL | ill).items()
            ],
            # promtool prints an alert that was not expected.
            "alert_rule_test": [{"eval_time": "55m", "alertname": name}],
        }
        for name, ill in causes.items()
    ]
    given = {"rule_files": ["alerts.yml"], "evaluation_interval": "15s", "tests": tests}
    (folder / "given.yml").write_text(yaml.safe_dump(given))
    command = [prometheus_tool("promtool"), "test", "rules", "given.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    found: dict[str, tuple[str, str]] = {}
    text = r'%s="((?:[^"\\]|\\.)*)"'
    for one in printed.split("alertname: ")[1:]:
        name = one.partition(",")[0]
        [summary] = re.findall(text % "summary", one)
        [description] = re.findall(text % "description", one)
        assert name not in found
        found[name] = summary, description
    return found


def test_each_alert_names_the_process_its_script_and_the_line_that_is_known(
    tmp_path: Path,
):
    found = texts(tmp_path, CAUSES)

    assert found.keys() == CAUSES.keys()
    for name, (summary, description) in found.items():
        if name in OF_EXPORTERS:
            assert all(text in description for text in OF_EXPORTERS[name]), name
            continue
        [(pid, rank)] = re.findall(r"PID (\d+), user ada, rank (\d)\) on", description)
        assert int(pid) == 1000 + int(rank)
        assert f"train.py (PID {pid}, " in description, name
        assert f"train.py (PID {pid})" in summary, name
        assert LINES.get(name, "") in description, name


def test_an_alert_of_a_process_that_has_ended_names_it(tmp_path: Path):
    ended = {
        key: value.replace("4x29", "4x4 stale") if "errors" in key else "1x215 stale"
        for key, value in CAUSES["NpuAsyncError"].items()
        if "errors" in key or "process_info" in key
    }
    # It has the PID of one that ended before, which runs another script.
    before = {info("a", 1, "old.py"): "1x200 stale"}

    found = texts(tmp_path, {"NpuAsyncError": before | ended})

    assert "train.py (PID 1001" in found["NpuAsyncError"][1]


def test_a_straggler_of_two_ranks_is_told_of_the_whole_time(tmp_path: Path):
    """The median of two ranks would be half of what the other one waits."""
    pair = {
        key.replace("01234567", "89abcdef"): value
        for rank, waits in ((0, "0x240"), (1, "0+5.25x240"))
        for key, value in process(
            "a", rank, G_collective_wait_seconds_total=waits
        ).items()
        if "collective" in key
    }
    judge(tmp_path, ("two ranks", pair, {"55m": ["NpuRankStraggler"]}))


def test_an_error_is_told_once_also_after_its_exporter_was_away(tmp_path: Path):
    errors = {
        "before the first scrape": ("_x20 1x219", {"6m": ["NpuAsyncError"], "11m": []}),
        "of before": ("1x40 _x60 1x139", {"26m": [], "30m": []}),
    }
    judge(
        tmp_path,
        *(
            (
                name,
                process("a", 1, D_async_errors_total__code__timeout=values),
                expected,
            )
            for name, (values, expected) in errors.items()
        ),
    )


def test_nothing_fires_where_all_is_well(tmp_path: Path):
    nothing = {f"{minute}m": [] for minute in (1, 2, 5, 10, 26, 31, 40, 55, 59)}
    # Races found before the first scrape are told for ten minutes, and then no more.
    known = process("a", 1, D_sanitizer_reports_total__kind__race_ww="5x240")
    judge(
        tmp_path,
        ("well", {}, nothing),
        *((name, series, nothing) for name, series in NOT_YET.items()),
        ("known", known, {"1m": ["NpuDataRace"], "11m": [], "40m": []}),
    )


def test_each_rule_says_what_to_do_and_waits_longer_than_two_scrapes():
    described = Path(__file__).parents[2] / "docs" / "metrics.md"
    text = described.read_text()
    for group in yaml.safe_load(exported("alerts"))["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                continue
            name, expr = rule["alert"], rule["expr"]
            anchor = f"docs/metrics.md#{name.lower()}"
            assert rule["annotations"]["runbook_url"] == anchor
            assert re.search(rf"^### {name}$", text, re.M), f"{name} is not described"
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            spans = re.findall(r"(\d+)m", f"{rule.get('for', '')} {expr}")
            assert max(map(int, spans)) >= 1, f"{name} is about less than a minute"


def test_the_runbooks_are_where_the_one_who_exports_says():
    address = "https://docs.example.org/npu/"
    done = CliRunner().invoke(main, ["export", "alerts", "--docs-url", address])

    assert f"{address}metrics.md#npuprocesshung" in done.output
    for text in (done.output, exported("alerts"), exported("kubernetes")):
        assert "DOCS" not in text  # the placeholder
