"""Every alert, fired in a real Prometheus by processes that have its trouble.

The rules are those that ship, with shorter times: seconds instead of minutes,
and no `for`. How long each really waits is for the rules' own tests.
"""

from __future__ import annotations

import contextlib
import http.server
import itertools
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_server import Prometheus, alert_names, exported, free_port, serving

from npu_dispatch.timeline.trace_file import TraceFile, trace_path

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(4 * 45 + 120),  # all its patience, and programs that start
]
_PATIENCE_S = 45.0

# Launches one small task in half a millisecond, or as many as it can.
HEALTHY = """
import sys, threading, time, torch
a = torch.ones(64, device="npu")
flood = threading.Event()
def launch():
    while True:
        for _ in range(200 if flood.is_set() else 20):
            a.add_(1)
        time.sleep(0.0005)
threading.Thread(target=launch, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    flood.set() if line.strip() == "flood" else flood.clear()
"""
# One stream never ends, its queue is full, two threads wait for it; then a task
# fails and a guard is hit.
TROUBLED = """
import sys, threading, torch
from npu_dispatch import _C
npu = torch.npu
held, by, bad = npu.Stream(), npu.Stream(), npu.Stream()
x, y = torch.ones(8, device="npu"), torch.ones(8, device="npu")
weight, index = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
# What follows finds its memory in the cache: there will be no other.
y.sum()
npu.synchronize()
with npu.stream(bad):
    weight + torch.nn.functional.embedding(index * 0, weight)
npu.synchronize()
_C.stream_wait(held.device_index, held.stream_id, by.device_index, by.stream_id,
               _C.stream_tail(by.device_index, by.stream_id) + 1)
shared = torch.empty(40 << 20, dtype=torch.uint8, device="npu")
shared.record_stream(held)
del shared
kept = torch.empty(80 << 20, dtype=torch.uint8, device="npu")
def fill():
    with npu.stream(held):
        while True:
            x.add_(1)
threading.Thread(target=fill, daemon=True).start()
threading.Thread(target=held.synchronize, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
with npu.stream(bad):
    torch.nn.functional.embedding(index, weight)
try:
    bad.synchronize()
except IndexError:
    pass
npu.set_sync_debug_mode("error")
try:
    y.sum().item()
except RuntimeError:
    pass
print("done", flush=True)
sys.stdin.readline()
import os
os._exit(0)
"""

# Two streams write one tensor and nothing orders them: a finding a line.
RACING = """
import sys, torch
npu = torch.npu
s = npu.Stream()
print("ready", flush=True)
for line in sys.stdin:
    exec(compile("x = torch.ones(8, device='npu')\\nwith npu.stream(s): x.add_(1)\\n",
                 line.strip(), "exec"))
    npu.synchronize()
    print("raced", flush=True)
"""


def quick_rules() -> str:
    text = exported("alerts")
    text = re.sub(r"\n +for: \w+", "", text)
    text = re.sub(r"\[\d+m\]", "[6s]", text)
    text = text.replace("[2m:5s]", "[3s:1s]")
    text = re.sub(r"(timestamp_seconds) > \d+", r"\1 > 3", text)
    # Launches take a ten thousandth of what this alert is about.
    return text.replace("> 20e-6", "> 20e-9")


@contextlib.contextmanager
def serve_text(text: str) -> Iterator[str]:
    """Answer every scrape with the same text, as nothing that lives does."""
    body = text.encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def until(
    prometheus: Prometheus,
    *alerts: str,
    trouble: Callable[[], object] = lambda: None,
) -> set[str]:
    """Return all that fired until all of `alerts` had, or it took too long.

    Causes the trouble again every few evaluations: one scrape may miss it.
    """
    seen: set[str] = set()
    start = time.monotonic()
    for turn in itertools.count():
        if seen >= set(alerts) or time.monotonic() - start > _PATIENCE_S:
            break
        if turn % 10 == 0:
            trouble()
        time.sleep(0.3)  # Prometheus tells nobody when it has evaluated
        seen |= prometheus.firing()
    took = time.monotonic() - start
    print(f"{took:.1f} s, without {sorted(set(alerts) - seen)}")
    return seen


def make_late(service: subprocess.Popen[str]) -> None:
    os.kill(service.pid, signal.SIGSTOP)
    time.sleep(1.0)  # what the service is late by
    os.kill(service.pid, signal.SIGCONT)


# It waits for alerts three times, and starts and stops eight programs.
@pytest.mark.timeout(3 * _PATIENCE_S + 120)
def test_each_alert_fires_when_its_trouble_happens(
    trainer, child_environment, tmp_path
):
    every = alert_names()
    nobody = f"127.0.0.1:{free_port()}"
    environment = child_environment(NPU_AUTOLOAD="0")
    with (
        serving(environment, "--interval=0.2") as (service, target),
        Prometheus(tmp_path, [target, nobody], quick_rules()) as prometheus,
    ):
        # Nobody uses the device yet; nobody listens on one of the ports.
        seen = until(prometheus, "Absent", "TargetDown")

        healthy = [trainer(HEALTHY, LOCAL_RANK=str(rank)) for rank in range(2)]
        troubled = trainer(TROUBLED, LOCAL_RANK="2", NPU_DISPATCH_MEMORY="128M")
        racing = trainer(RACING, LOCAL_RANK="3", TORCH_NPU_SANITIZER="report")
        for program in (*healthy, troubled, racing):
            assert program.line() == "ready"
        seen |= until(
            prometheus,
            *("StreamStalled", "NoProgress", "QueueSaturated", "ProducerBlocked"),
            *("SyncTax", "DeferredFree", "NearOOM"),
            *("LaunchBound", "LaunchSLO", "RankStraggler"),
        )
        # Only now: an increase needs a zero before it.
        troubled.say("on")
        assert troubled.line() == "done"
        with TraceFile(trace_path(healthy[0].pid)) as trace:
            trace.read()
            trace.wanted = trace.following = True
            healthy[0].say("flood")
            make_late(service)
            trace.read()
            with urllib.request.urlopen(f"http://{target}/metrics") as answer:
                text = answer.read().decode()
            turns = itertools.count()

            def trouble() -> None:
                racing.say(f"turn {next(turns)}")
                assert racing.line() == "raced"
                make_late(service)

            with serve_text(text) as frozen:
                prometheus.add(frozen)
                seen |= until(prometheus, *every - seen, trouble=trouble)
            trace.wanted = False

    assert every - seen == set()
