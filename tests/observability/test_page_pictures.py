"""Pictures of the page in each state, and what axe-core says of each.

They are left in out/page/. Those of docs/page/ come from there, with fewer
colours, after somebody has looked at them.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import (
    overflowing,
    save_picture,
    set_scheme,
    set_size,
    violations,
    wait_for,
)
from page_feed import PageFeed, ranks, snapshot, with_trend, with_verdict
from prometheus_server import serving

import npu_dispatch.observe.serve
from npu_dispatch.observe.judge.rates import Reading
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.snapshot import process_values

pytestmark = pytest.mark.nightly

GROUNDS = {"light": "rgb(246, 247, 249)", "dark": "rgb(18, 22, 28)"}
PAGE = Path(npu_dispatch.observe.serve.__file__).parent / "page"
DEVICE_BOUND = """
import torch

def step(x):
    for _ in range(30):
        y = x @ x
    return y

x = torch.full((512, 512), 0.5, device="npu")
print("runs", flush=True)
while True:
    step(x)
    torch.npu.synchronize()
"""
LAUNCH_BOUND = """
import math, torch

def step(parameters):
    for p in parameters:
        p.add_(1)
        [math.cos(i) for i in range(500)]

parameters = [torch.zeros(8, device="npu") for _ in range(100)]
print("runs", flush=True)
while True:
    step(parameters)
"""
BLOCKED = """
import torch

def step(x):
    return (x @ x).sum().item()

x = torch.full((512, 512), 0.5, device="npu")
print("runs", flush=True)
while True:
    step(x)
    sum(range(200_000))
"""
HUNG = """
import torch

def wait_for_data(gate, copies):
    gate.wait(copies)

gate, copies = torch.npu.ExternalEvent(), torch.npu.Stream()
x = torch.full((64, 64), 0.5, device="npu")
torch.npu.synchronize()
wait_for_data(gate, copies)
with torch.npu.stream(copies):
    y = x @ x
torch.npu.current_stream().wait_stream(copies)
print("runs", flush=True)
y.sum().item()
"""


@contextlib.contextmanager
def program(folder: Path, code: str, env: dict[str, str]) -> Iterator[Any]:
    """A program train.py that has said that it runs."""
    script = folder / "train.py"
    script.write_text(code)
    with subprocess.Popen(
        [sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "runs\n"
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def shown(
    browser, environment, folder: Path, code: str, *options: str
) -> Iterator[tuple[Any, Any]]:
    """A program, and the service whose page the browser shows."""
    with program(folder, code, environment()) as process:
        options = (str(process.pid), "--interval=0.25", *options)
        with serving(environment(NPU_AUTOLOAD="0"), *options) as (service, target):
            browser.get(f"http://{target}/")
            yield process, service


def is_shown(browser, kind: str) -> None:
    """Return once the page shows that kind, and ten readings more."""
    word = "document.querySelector('#headline .word').textContent"
    first = wait_for(browser, f"{word} === '{kind}' && document.body.dataset.drawn")
    wait_for(browser, f"Number(document.body.dataset.drawn) > {float(first) + 2.5}")


def keep(browser, name: str) -> None:
    """Save the page, and as a dark one on a phone; neither may have a fault."""
    for suffix, width, scheme in (("", 1265, "light"), ("_phone", 360, "dark")):
        set_size(browser, width, 900)
        set_scheme(browser, scheme)
        lane = "document.querySelector('#device .uplot')"
        wait_for(browser, f"!{lane} || {lane}.clientWidth < {width}")
        browser.execute_script("scrollTo(0, 0)")
        save_picture(browser, f"{name}{suffix}")
        assert (violations(browser), overflowing(browser)) == ([], [])
        ground = "getComputedStyle(document.body).backgroundColor"
        assert browser.execute_script(f"return {ground}") == GROUNDS[scheme]
    assert browser.get_log("browser") == []


def test_nothing_yet(browser, child_environment):
    # No process has this number.
    with serving(child_environment(NPU_AUTOLOAD="0"), "1") as (_, target):
        browser.get(f"http://{target}/")
        wait_for(browser, "document.body.dataset.drawn")
        keep(browser, "nothing")


def test_the_line_to_type_is_shown_when_it_has_been_typed(browser, child_environment):
    line = re.search("<pre[^>]*>(.*)</pre>", (PAGE / "index.html").read_text())
    assert line is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = shlex.split(html.unescape(line[1]))
    with subprocess.Popen(command, env=child_environment(PATH=path)) as typed:
        try:
            option = str(typed.pid)
            with serving(child_environment(NPU_AUTOLOAD="0"), option) as (_, target):
                browser.get(f"http://{target}/")
                who = "document.querySelector('#who').textContent"
                wait_for(browser, f"{who}.includes('pid {typed.pid}')")
        finally:
            typed.kill()


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("healthy", DEVICE_BOUND, "device-bound"),
        ("launch_bound", LAUNCH_BOUND, "launch-bound"),
        ("blocked", BLOCKED, "blocked"),
        ("hung", HUNG, "hung"),
    ],
)
def test_a_program(browser, child_environment, tmp_path, name, code, kind):
    with shown(browser, child_environment, tmp_path, code, "--hang-seconds=2"):
        is_shown(browser, kind)
        keep(browser, name)


def test_a_program_that_is_killed(browser, child_environment, tmp_path):
    with shown(browser, child_environment, tmp_path, BLOCKED) as (process, _):
        wait_for(browser, "document.querySelector('.uplot')")
        process.kill()
        is_shown(browser, "killed")
        who = browser.find_element("id", "who").text
        keep(browser, "killed")

    assert who == f"train.py, pid {process.pid}"


def test_a_lost_connection(browser, child_environment, tmp_path):
    with shown(browser, child_environment, tmp_path, DEVICE_BOUND) as (_, service):
        is_shown(browser, "device-bound")
        service.terminate()
        service.wait()
        wait_for(browser, "document.body.dataset.feed === 'lost'")
        browser.get_log("browser")  # of requests that nobody answers
        wait_for(browser, "/ are 2 s old/.test(document.body.textContent)")
        save_picture(browser, "lost")
        assert (violations(browser), overflowing(browser)) == ([], [])


def test_eight_ranks_with_a_straggler(browser, write_segment, ghost, tmp_path_factory):
    fields = {("StreamBlock.tail", 0): 40}
    with Processes(directory=write_segment(ghost, fields)) as processes:
        [view] = processes.refresh()
    one = process_values(None, Reading(view), 10.0)
    line = "/home/a/job/train.py:88 in step"
    one["lines"] = [
        {"at": line, "reason": "item", "share": 0.03, "count": 12_000, "seconds": 360.5}
    ]
    several = ranks(one, 8, slow=5)
    several[5] |= {"began": 1.0}
    several[5] = with_verdict(
        several[5],
        "host-bound",
        text="host-bound: Python does other work than launching for 71 % of the time",
        at="/home/a/job/loader.py:31 in decode",
        action="Load data in worker processes: DataLoader(num_workers=4).",
    )
    with PageFeed(tmp_path_factory.mktemp("none")) as feed:
        browser.get(feed.url)
        for tick in range(30):
            moved = [
                with_trend(
                    rank,
                    device={n: s * (1 + tick % 3 / 20) for n, s in device.items()},
                    depths={"0:0": tick * 7 % 31},
                )
                for rank in several
                for device in [rank["trend"]["device"]]
            ]
            feed.send(snapshot(tick, *moved))
        wait_for(browser, "Number(document.body.dataset.drawn) === 29")
        keep(browser, "ranks")
