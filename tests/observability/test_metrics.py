"""npu_dispatch.metrics: names, formats, and whose processes they show."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time
import urllib.request

import pytest
import torch
from described_metrics import described
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from starlette.applications import Starlette
from starlette.testclient import TestClient

from npu_dispatch.metrics import NpuCollector, asgi_app, start_exporter
from npu_dispatch.observe.segment.folders import SUFFIX
from npu_dispatch.observe.segment.layout import OFFSETS
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.values import Histogram
from npu_dispatch.observe.serve.families import Families, Labels, format_for
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.scrapes import Scrapes
from npu_dispatch.observe.serve.telemetry import Telemetry

OPEN_1 = "application/openmetrics-text; version=1.0.0"
OPEN_2 = "application/openmetrics-text; version=2.0.0"

# Of groups, of operators with --ops, of living threads, and of lines.
ELSEWHERE = r"collective|op_sampled_|consumer_(cpu|heartbeat)|process_line|.*killed_"
TRAIN = """
import sys, torch
a = torch.ones(64, device="npu")
for _ in range(320):
    a.add_(1)
torch.npu.synchronize()
from npu_dispatch.metrics import start_exporter
exporter = start_exporter(0)
print({shown}, flush=True)
print("trained", flush=True)
sys.stdin.readline()
"""


def busy_segment(write_segment, pid: int, streams: int = 1, **more):
    fields = {("DeviceBlock.memory_total", 0): 1 << 30}
    for i in range(streams):
        fields[("StreamBlock.tail", i)] = 10 + i
        fields[("StreamBlock.retired", i)] = 4
    return write_segment(pid, fields, streams=streams, **more)


def collected(folder, *, ranked: bool = False):
    """Return the metrics, without those that the exporter has about itself.

    Without `ranked` they are those of one process, the folder's first.
    """
    pid = None if ranked else int(min(path.name for path in folder.iterdir()))
    found = Scrapes(ServiceConfig(pid=pid, directory=folder)).families()
    own = ("npu_dispatch_exporter_", "npu_dispatch_build")
    return [family for family in found if not family.name.startswith(own)]


def negotiate(accept: str, found) -> tuple[bytes, str]:
    form = format_for(accept)
    return form.text(found), form.content_type


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for metric in parse_text(text):
        for sample in metric.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


@pytest.mark.parametrize("per_stream", [False, True])
def test_names_kinds_and_labels_are_those_of_the_page(moved_segment, ghost, per_stream):
    folder = moved_segment(ghost)
    config = ServiceConfig(pid=ghost, directory=folder, per_stream=per_stream)
    telemetry = Telemetry()
    telemetry.note("/metrics", "GET", 200, 1)
    body = Scrapes(config).answer(OPEN_1, telemetry.families)[0].decode()
    endings = {"counter": "_total", "info": "_info"}
    found = {
        family.name.removeprefix("npu_dispatch_") + endings.get(family.type, ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in parse_open(body)
    }
    wanted = {
        name: row
        for name, row in described(per_stream=per_stream).items()
        if name in found or not re.match(ELSEWHERE, name)
    }

    assert found == wanted


def test_who_was_killed_is_told_once_also_where_two_containers_have_its_pid(
    write_segment, ghost
):
    for name in (f"{ghost}{SUFFIX}", f"{ghost}-5{SUFFIX}"):
        folder = write_segment(ghost, {}, rank="3", command=b"python\0train.py")
        (folder / str(ghost)).rename(folder / name)
    found = Scrapes(ServiceConfig(directory=folder)).families()

    [killed] = [f for f in found if f.name.endswith("_exporter_killed_process")]
    [sample] = killed.samples
    user = sample.labels["user"]
    who = {"pid": str(ghost), "name": "train.py", "user": user, "rank": "3"}
    assert sample.labels == who


def test_text_and_openmetrics_have_the_same_series(write_segment, ghost):
    found = collected(busy_segment(write_segment, ghost, streams=3), ranked=True)
    text, kind = negotiate("", found)
    opened, open_kind = negotiate(OPEN_1, found)

    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert open_kind.startswith(f"{OPEN_1}; charset=utf-8")
    parsed = list(parse_open(opened.decode()))
    series = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for metric in parsed
        for s in metric.samples
    }
    assert values(text.decode()) == series
    assert {f.name: (f.type, f.unit) for f in found} == {
        m.name: (m.type, m.unit) for m in parsed
    }


def latencies():
    """Return a metric of latencies, five of 1 ms and two of 3 ms."""
    out, buckets = Families(), [0] * 156
    # By hand: 1e6 ns is 4 * (19 - 1) + 3.
    buckets[75], buckets[81] = 5, 2
    histogram = Histogram(7, 11_000_000, tuple(buckets), 4)
    out.histogram("task_latency_seconds", "", Labels(device="0"), histogram)
    return list(out.all())


def test_classic_buckets_add_up():
    lines = negotiate("", latencies())[0].decode().splitlines()

    name = "npu_dispatch_task_latency_seconds"
    where = 'device="0",le="%s"'
    for end, count in ("0.0005", 0), ("0.0025", 5), ("0.005", 7), ("+Inf", 7):
        assert f"{name}_bucket{{{where % end}}} {count}.0" in lines
    assert f'{name}_count{{device="0"}} 7.0' in lines
    assert f'{name}_sum{{device="0"}} 0.011' in lines


def test_a_version_that_cannot_be_gets_an_answer(tmp_path):
    scrapes = Scrapes(ServiceConfig(directory=tmp_path))
    for version in ("abc", "1.x", "", "-1"):
        asked = f"application/openmetrics-text; version={version}"
        body, kind = scrapes.answer(asked)
        parse = parse_text if kind.startswith("text/plain") else parse_open
        names = [f.name for f in parse(body.decode())]
        assert "npu_dispatch_exporter_segments" in names, version


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0", "text/plain"),
        (f"{OPEN_1};q=0.4, text/plain;version=0.0.4;q=0.9", "text/plain"),
        (f"text/html, text/plain;q=0.1, {OPEN_1};q=0.2", "application/openmetrics"),
        (f"{OPEN_1};q=0.6, */*;q=0.2", "application/openmetrics"),
        (f"{OPEN_1};q=2, */*;q=0.2", "application/openmetrics"),
    ],
)
def test_the_format_is_the_one_that_the_client_likes_best(accept, kind):
    assert negotiate(accept, [])[1].startswith(kind)


def test_kept_answers_do_not_grow_with_what_clients_ask(tmp_path):
    scrapes = Scrapes(ServiceConfig(directory=tmp_path, kept_seconds=600))

    given = {
        id(scrapes.answer(f"{kind}; version={major}.0.{minor}")[0])
        for kind in ("application/openmetrics-text", "text/plain")
        for major in (1, 2, 3)
        for minor in range(50)
    }

    assert len(given) == 2  # text and OpenMetrics


def test_the_collector_is_for_a_registry_of_ones_own():
    torch.npu.init()
    registry = CollectorRegistry()
    registry.register(NpuCollector(pid=os.getpid()))

    found = values(generate_latest(registry).decode())

    pids = [dict(k[1])["pid"] for k in found if k[0] == "npu_dispatch_process_info"]
    assert pids == [str(os.getpid())]


def test_a_registry_takes_one_collector():
    registry = CollectorRegistry()
    registry.register(NpuCollector())

    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(NpuCollector(pid=os.getpid()))


def test_who_asks_for_openmetrics_2_gets_histograms_of_1():
    given, content_type = negotiate(OPEN_2, latencies())

    assert (given, content_type) == negotiate(OPEN_1, latencies())
    assert b"_bucket" in given


def test_exemplars_name_a_task_of_their_bucket(write_segment, ghost, monkeypatch):
    at = OFFSETS["StreamBlock.latency_exemplars"]
    index = 75  # of 1 ms: by hand, 4 * (19 - 1) + 3
    fields = {("StreamBlock.tail", 0): 99, ("StreamBlock.latency_ns", 0): 1}
    fields["DeviceBlock.memory_total", 0] = 1
    folder = write_segment(ghost, fields)
    path = folder / str(ghost)
    stream = OFFSETS["Segment.devices"] + OFFSETS["DeviceBlock.size"]
    stream += -stream % 64
    with path.open("r+b") as file:
        file.seek(stream + OFFSETS["StreamBlock.latency_ns"] + 8 * (2 + index))
        file.write((1).to_bytes(8, "little"))
        # Task 42 took 1 ms, two seconds after the machine's start.
        file.seek(stream + at + 24 * 19)
        for word in (42 + 1, 1_000_000, 2_000_000_000):
            file.write(word.to_bytes(8, "little"))
    offset = "npu_dispatch.observe.serve.scrapes.unix_offset_ns"
    monkeypatch.setattr(offset, lambda: 1_000_000_000_000)
    scrapes = Scrapes(ServiceConfig(directory=folder))

    found = [
        sample
        for family in parse_open(scrapes.answer(OPEN_1)[0].decode())
        for sample in family.samples
        if sample.exemplar
    ]

    [sample] = found
    assert sample.name == "npu_dispatch_task_latency_seconds_bucket"
    assert sample.labels["le"] == "0.001"
    assert sample.exemplar.labels == {"task": "0/42"}
    assert sample.exemplar.value == 0.001
    assert float(sample.exemplar.timestamp) == 1002
    assert b" # {task=" not in scrapes.answer("")[0]
    assert b'# {task="0/42"}' in scrapes.answer(OPEN_2)[0]


def test_a_copy_is_a_cause_under_its_name_and_a_reason_under_another(
    write_segment, ghost
):
    fields = {("StreamBlock.tail", 0): 1, ("DeviceBlock.memory_total", 0): 1}
    folder = write_segment(ghost, fields)
    device = OFFSETS["Segment.devices"]
    stream = device + OFFSETS["DeviceBlock.size"]
    stream += -stream % 64
    with (folder / str(ghost)).open("r+b") as file:
        file.seek(device + OFFSETS["DeviceBlock.waits"] + 8 * 1)
        file.write((5).to_bytes(8, "little"))
        file.seek(stream + OFFSETS["StreamBlock.held"] + 8 * 2)
        file.write((3 * 10**9).to_bytes(8, "little"))

    found = values(negotiate("", collected(folder))[0].decode())

    total = {
        (name.removeprefix("npu_dispatch_"), dict(labels).get(which)): value
        for (name, labels), value in found.items()
        for which in ("reason", "cause")
    }
    assert total["host_sync_total", "d2h"] == 5
    assert total["stream_wait_seconds_total", "copy"] == 3


def test_streams_unused_for_five_minutes_are_folded_away(write_segment, ghost):
    fields = {("StreamBlock.last_retired_ns", i): 1 for i in range(4)}
    fields[("StreamBlock.tail", 2)] = 2  # has work
    fields[("StreamBlock.state", 3)] = 2  # has failed
    found = collected(write_segment(ghost, fields, streams=4))

    [depth] = [f for f in found if f.name.endswith("_queue_capacity")]
    assert [sample.labels["stream"] for sample in depth.samples] == ["0", "2", "3"]


def test_eight_ranks_of_64_streams_stay_in_their_budget(write_segment):
    fields = {("DeviceBlock.memory_total", 0): 1 << 30}
    for i in range(64):
        # Each stream was held, and its callers have met a full queue.
        for name in ("full_waits", "full_wait_ns", "last_retired_ns", "deferred_bytes"):
            fields[f"StreamBlock.{name}", i] = time.monotonic_ns()
        fields["StreamBlock.held", i] = 1
        fields["StreamBlock.tail", i] = 10
        fields["StreamBlock.retired", i] = 4
    with contextlib.ExitStack() as ranks:
        for rank in range(8):
            process = ranks.enter_context(subprocess.Popen(["sleep", "600"]))
            ranks.callback(process.kill)
            folder = write_segment(process.pid, fields, streams=64, rank=str(rank))
        body, _ = negotiate("", collected(folder, ranked=True))
    lines = body.splitlines()
    of_streams = [line for line in lines if b',stream="' in line]

    assert len(lines) < 10_000
    assert len(of_streams) <= 8 * 64 * 30


def test_processes_with_one_rank_still_have_different_series(write_segment, ghost):
    busy_segment(write_segment, os.getpid(), rank="0")
    folder = busy_segment(write_segment, ghost, rank="0")

    found = values(negotiate("", collected(folder, ranked=True))[0].decode())

    capacities = [dict(k[1]) for k in found if k[0].endswith("queue_capacity")]
    assert {of["process"] for of in capacities} == {str(os.getpid()), str(ghost)}
    assert {of["rank"] for of in capacities} == {"0"}


def test_a_rank_is_not_made_up(write_segment, ghost):
    found = collected(busy_segment(write_segment, ghost), ranked=True)

    labels = {name for f in found for sample in f.samples for name in sample.labels}
    assert "process" in labels
    assert not labels & {"rank", "local_rank", "job_id", "pod"}


def test_a_dead_process_disappears_with_its_segment(write_segment):
    with subprocess.Popen(["sleep", "600"]) as process:
        folder = busy_segment(write_segment, process.pid)
        with Processes(directory=folder) as processes:
            assert len(processes.refresh()) == 1

            process.kill()
            process.wait()

            assert processes.refresh() == ()
            assert {path.suffix for path in folder.iterdir()} <= {".dead"}


def test_the_labels_of_a_process_are_kept_until_it_ends(write_segment):
    def kept() -> list[Labels]:
        who = str(process.pid)
        every = [one for one in gc.get_objects() if isinstance(one, Labels)]
        return [labels for labels in every if labels.get("process") == who]

    with subprocess.Popen(["sleep", "600"]) as process:
        scrapes = Scrapes(
            ServiceConfig(directory=busy_segment(write_segment, process.pid))
        )
        scrapes.families()
        of_life = len(kept())
        scrapes.families()
        assert len(kept()) == of_life > 0

        process.kill()
        process.wait()
        scrapes.families()

        assert not kept()


def test_a_number_used_again_is_not_the_process_that_wrote(write_segment, ghost):
    folder = busy_segment(write_segment, ghost, start=1)

    with Processes(directory=folder) as processes:
        assert processes.refresh() == ()
    assert {path.suffix for path in folder.iterdir()} <= {".dead"}


@pytest.mark.parametrize("namespace", [12345, 0])  # 0: the owner did not know its own
def test_a_process_of_another_namespace_lives_as_long_as_its_lock(
    write_segment, namespace: int
):
    # Its number and start are those of a process here, which is not the one.
    folder = busy_segment(write_segment, os.getpid(), namespace=namespace)
    owner = os.open(folder / str(os.getpid()), os.O_RDWR)
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(owner, fcntl.F_OFD_SETLK, lock)

    with Processes(directory=folder) as processes:
        assert len(processes.refresh()) == 1
        assert [stream.cpu_seconds for stream in processes.views[0].streams] == [None]
        os.close(owner)  # as the kernel does when the process ends
        assert processes.refresh() == ()
    assert [path.suffix for path in folder.iterdir()] == [".dead"]


def test_what_is_no_segment_is_counted_and_kept(tmp_path):
    (tmp_path / "77").write_bytes(b"x" * 5000)
    scrapes = Scrapes(ServiceConfig(directory=tmp_path))

    found = values(scrapes.answer("")[0].decode())

    assert found[("npu_dispatch_exporter_segments_stale", ())] == 1
    assert (tmp_path / "77").exists()


def test_the_exporter_answers_while_the_trainer_is_stopped(trainer):
    program = trainer(TRAIN.format(shown="exporter.url"))
    url = program.line()
    assert program.line() == "trained"
    os.kill(program.pid, signal.SIGSTOP)  # neither its GIL nor any thread of it

    with urllib.request.urlopen(url, timeout=30) as answer:
        found = values(answer.read().decode())

    stream = (("device", "0"), ("stream", "0"))
    assert found[("npu_dispatch_tasks_enqueued_total", stream)] >= 320
    assert found[("npu_dispatch_queue_depth", stream)] == 0
    # As is_sampled() of csrc/stats/layout.h says.
    tasks = range(int(found[("npu_dispatch_tasks_enqueued_total", stream)]))
    samples = sum(n * 0x9E3779B9 % 2**32 < 2**28 for n in tasks)
    assert found["npu_dispatch_task_latency_seconds_count", stream[:1]] == samples


def test_the_exporter_ends_with_its_trainer(trainer):
    program = trainer(TRAIN.format(shown="exporter._process.pid"))
    helper = os.pidfd_open(int(program.line()))
    program.line()

    program.process.kill()

    assert select.select([helper], [], [], 60)[0]
    os.close(helper)


def test_a_taken_port_is_reported():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="in use"),
    ):
        start_exporter(taken.getsockname()[1])


def test_the_asgi_app_answers_where_it_is_mounted():
    torch.npu.init()
    site = Starlette()
    site.mount("/metrics", asgi_app(pid=os.getpid()))
    with TestClient(site) as client:
        answer = client.get("/metrics", headers={"accept": OPEN_1})
        head = client.head("/metrics")
        posted = client.post("/metrics")
        plain = {
            refusal: client.get("/metrics", headers={"accept-encoding": refusal})
            for refusal in ("gzip;q=0", "gzip;q=0.0, identity;q=1", "br")
        }
        chosen = client.get(
            "/metrics?name[]=npu_dispatch_queue_depth&name[]=npu_dispatch_build_info"
        )

    assert {name for name, _ in values(chosen.text)} <= {
        "npu_dispatch_queue_depth",
        "npu_dispatch_build_info",
    }
    assert "npu_dispatch_build_info" in chosen.text
    assert answer.headers["content-encoding"] == "gzip"
    for refusal, one in plain.items():
        assert "content-encoding" not in one.headers, refusal
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert {"npu_dispatch_streams"} <= {f.name for f in parse_open(answer.text)}
    assert (head.status_code, head.content) == (200, b"")
    assert posted.status_code == 405
