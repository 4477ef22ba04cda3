"""Every alert, fired in a real Prometheus by processes that have its trouble.

The rules are those that ship, with shorter times: seconds instead of minutes,
and no `for`. How long each really waits is for the rules' own tests.
"""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from npu_dispatch.cli import main
from npu_dispatch.trace_file import TraceFile, trace_path

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
x = torch.ones(8, device="npu")
weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
# What follows finds its memory in the cache: there will be no other.
x.sum()
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
    x.sum().item()
except RuntimeError:
    pass
print("done", flush=True)
sys.stdin.readline()
import os
os._exit(0)
"""


def exported(what: str) -> str:
    done = CliRunner().invoke(main, ["export", what])
    assert done.exit_code == 0, done.output
    return done.output


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
    """Answer every scrape with the same text, but for races, which it counts."""
    scrapes = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal scrapes
            scrapes += 1
            races = r'(sanitizer_reports_total\{[^}]*kind="race_ww"[^}]*\}) .*'
            body = re.sub(races, rf"\g<1> {scrapes}.0", text).encode()
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Prometheus:
    def __init__(self, folder: Path, targets: list[str]) -> None:
        program = shutil.which("prometheus")
        if program is None:
            pytest.skip("prometheus is missing: apt-get install prometheus")
        config = yaml.safe_load(exported("scrape-config"))
        [scrape] = config["scrape_configs"]
        scrape["scrape_interval"] = scrape["scrape_timeout"] = "500ms"
        del scrape["static_configs"]
        # Targets can then be added while it runs.
        scrape["file_sd_configs"] = [{"files": [str(folder / "targets.json")]}]
        scrape["file_sd_configs"][0]["refresh_interval"] = "1s"
        config["global"] = {"evaluation_interval": "1s"}
        config["rule_files"] = [str(folder / "alerts.yml")]
        self._targets, self._folder = targets, folder
        self.add(*targets)
        (folder / "alerts.yml").write_text(quick_rules())
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._port = free_port()
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stderr=subprocess.DEVNULL,
        )

    def add(self, *targets: str) -> None:
        self._targets = [*self._targets, *targets]
        part = self._folder / "targets.part"
        part.write_text(json.dumps([{"targets": sorted(set(self._targets))}]))
        part.rename(self._folder / "targets.json")

    def firing(self) -> set[str]:
        query = urllib.parse.urlencode({"query": 'ALERTS{alertstate="firing"}'})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            return set()  # it is starting
        return {alert["metric"]["alertname"] for alert in found}

    def until(
        self, *alerts: str, trouble: Callable[[], object] = lambda: None
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
            seen |= self.firing()
        took = time.monotonic() - start
        print(f"{took:.1f} s, without {sorted(set(alerts) - seen)}")
        return seen


def make_late(service: subprocess.Popen[str]) -> None:
    os.kill(service.pid, signal.SIGSTOP)
    time.sleep(1.0)  # what the service is late by
    os.kill(service.pid, signal.SIGCONT)


def test_each_alert_fires_when_its_trouble_happens(
    trainer, child_environment, tmp_path
):
    rules = yaml.safe_load(exported("alerts"))["groups"]
    every = {r["alert"] for g in rules for r in g["rules"] if "alert" in r}
    service = subprocess.Popen(
        [sys.executable, "-m", "npu_dispatch.service", "--port=0", "--interval=0.2"],
        env=child_environment(NPU_AUTOLOAD="0"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    url = urllib.parse.urlsplit(service.stdout.readline().strip())
    nobody = f"127.0.0.1:{free_port()}"
    prometheus = Prometheus(tmp_path, [url.netloc, nobody])
    seen: set[str] = set()
    try:
        # Nobody uses the device yet; nobody listens on one of the ports.
        seen |= prometheus.until("Absent", "TargetDown")

        healthy = [trainer(HEALTHY, LOCAL_RANK=str(rank)) for rank in range(2)]
        troubled = trainer(TROUBLED, LOCAL_RANK="2", NPU_DISPATCH_MEMORY="128M")
        for program in (*healthy, troubled):
            assert program.line() == "ready"
        seen |= prometheus.until(
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
            text = urllib.request.urlopen(f"{url.geturl()}metrics").read().decode()
            with serve_text(text) as frozen:
                prometheus.add(frozen)
                seen |= prometheus.until(
                    *every - seen, trouble=lambda: make_late(service)
                )
            trace.wanted = False
    finally:
        for process in (prometheus.process, service):
            process.terminate()
            process.wait()

    assert every - seen == set()
