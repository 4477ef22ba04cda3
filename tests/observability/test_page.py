"""The live page in a real browser."""

from __future__ import annotations

import socket
import subprocess
import threading

import pytest
import uvicorn
from browser import open_browser, overflowing, save_picture, violations, wait_for
from prometheus_server import serving
from selenium.webdriver.support.ui import WebDriverWait

from npu_dispatch.service.app import ServiceConfig, create_app

pytestmark = pytest.mark.nightly

TRAIN = """
import sys, torch
a = torch.ones(64, 64, device="npu")
torch.npu.synchronize()
streams = [torch.npu.Stream() for _ in range(3)]
for i in range(200):
    for stream in streams:
        with torch.npu.stream(stream):
            a @ a
    a.sum().item()
torch.npu.synchronize()
print("trained", flush=True)
sys.stdin.readline()
"""


OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
# Legends by label, without the time.
LEGEND = """
const legend = (id) => Object.fromEntries(
  [...document.querySelectorAll(`#${id} .u-series`)].slice(1).map((entry) =>
    [entry.querySelector(".u-label").textContent,
     entry.querySelector(".u-value").textContent]));
"""


@pytest.mark.parametrize(
    ("name", "width", "height", "dark"),
    [("desktop", 1300, 900, False), ("phone", 390, 844, True)],
)
def test_the_page_draws_a_running_process(
    trainer, child_environment, name, width, height, dark
):
    program = trainer(TRAIN)
    assert program.line() == "trained"
    option = f"--pid={program.pid}"
    with serving(child_environment(NPU_AUTOLOAD="0"), option) as (_, target):
        browser = open_browser(width, height, dark=dark)
        try:
            browser.get(f"http://{target}/")
            wait_for(browser, "document.body.dataset.drawn")
            browser.execute_script(OPEN)
            wait_for(browser, "document.querySelectorAll('#memory .u-series').length")
            found = browser.execute_script(
                LEGEND
                + """return {
                  who: document.querySelector("#who").textContent,
                  streams: [...document.querySelectorAll("#streams tbody tr")]
                    .map((row) => row.cells[0].textContent),
                  bars: [...document.querySelectorAll("#streams .bar")].map((bar) =>
                    [...bar.children].map((part) =>
                      part.getBoundingClientRect().width)),
                  depths: legend("queue"), waits: legend("host"),
                  memory: legend("memory"),
                  ground: getComputedStyle(document.body).backgroundColor}"""
            )
            save_picture(browser, f"running_{name}")
            over, found_by_axe = overflowing(browser), violations(browser)
            complaints = browser.get_log("browser")
        finally:
            browser.quit()

    assert (complaints, over, found_by_axe) == ([], [], [])
    assert f"pid {program.pid}" in found["who"]
    assert found["streams"][0] == "0:0"
    assert len(found["streams"]) == 4
    # Busy, starved, held and idle of each stream fill its bar, whatever they are.
    assert [len(parts) for parts in found["bars"]] == [4] * 4
    assert len({round(sum(parts)) for parts in found["bars"]}) == 1
    # The newest values, as nobody points: all is done.
    assert found["depths"] == dict.fromkeys(found["streams"], "0")
    assert {"item", "device sync"} <= set(found["waits"])
    assert found["memory"]["reserved"].endswith(" MiB")
    assert found["memory"]["deferred"] == "0 B"
    assert found["ground"] == ("rgb(18, 22, 28)" if dark else "rgb(246, 247, 249)")


# A stream that stands still, one that waits for it, and the host for that one.
STUCK = """
import sys, threading, torch
npu = torch.npu
gate, held, behind = npu.ExternalEvent(), npu.Stream(), npu.Stream()
a = torch.ones(64, 64, device="npu")
npu.synchronize()
gate.wait(held)
with npu.stream(held):
    a @ a
behind.wait_stream(held)
print(f"0:{held.stream_id} 0:{behind.stream_id}", flush=True)
def evaluate():
    with npu.stream(held):
        (a @ a).sum().item()
threading.Thread(target=evaluate, daemon=True).start()
behind.synchronize()  # line 16
"""


@pytest.mark.parametrize(
    ("name", "width", "height", "dark"),
    [("hung", 1300, 900, False), ("hung_phone", 390, 844, True)],
)
def test_what_hangs_is_drawn_with_the_host_threads_that_wait(
    trainer, child_environment, name, width, height, dark
):
    program = trainer(STUCK)
    held, behind = program.line().split()
    options = ["--hang-seconds=0.5", "--interval=0.2", f"--pid={program.pid}"]
    with serving(child_environment(NPU_AUTOLOAD="0"), *options) as (_, target):
        browser = open_browser(width, height, dark=dark)
        try:
            browser.get(f"http://{target}/")
            browser.execute_script(OPEN)
            wait_for(
                browser,
                """document.querySelectorAll("#waits .node").length == 4
                  && document.querySelectorAll("#waiting tbody tr").length == 2""",
            )
            found = browser.execute_script(
                """return {
                  kind: document.querySelector("#headline .word").textContent,
                  verdict: document.querySelector("#headline .text").textContent,
                  at: document.querySelector("#headline code").textContent,
                  heads: [...document.querySelectorAll("#waits .head")]
                    .map((head) => head.textContent),
                  nodes: [...document.querySelectorAll("#waits .who")]
                    .map((node) => node.textContent),
                  waiting: [...document.querySelectorAll("#waiting tbody tr")]
                    .map((row) => [...row.cells].map((cell) => cell.textContent))}"""
            )
            over, found_by_axe = overflowing(browser), violations(browser)
            complaints = browser.get_log("browser")
        finally:
            browser.quit()

    assert (complaints, over, found_by_axe) == ([], [], [])
    assert found["kind"] == "hung"
    # The line of the culprit, and not where the host waits for it.
    assert found["at"] == "<string>:7 in <module>"
    event = "waits for an event nobody has recorded"
    assert event in found["verdict"] and event in found["heads"]
    assert sorted(found["nodes"])[:2] == sorted([held, behind])
    assert "host main" in found["nodes"] and len(found["nodes"]) == 4
    [main] = [row for row in found["waiting"] if row[0] == "main"]
    assert main[1:4] == ["<string>:16 in <module>", "stream sync", behind]
    assert main[4].endswith(" s") or main[4].endswith(" ms")
    [other] = [row for row in found["waiting"] if row[0] != "main"]
    assert other[1:4] == ["<string>:14 in evaluate", "item", held]


RESTS = """
import sys, torch
torch.ones(3, device="npu") + 1
torch.npu.synchronize()
print("rests", flush=True)
sys.stdin.readline()
"""
NOTHING = """
import sys, torch
torch.npu.init()
print("nothing", flush=True)
sys.stdin.readline()
"""


def test_the_page_opens_on_who_needs_people(trainer, child_environment):
    # In this order, so that the one that hangs is not the first.
    nothing, rests, stuck = trainer(NOTHING), trainer(RESTS), trainer(STUCK)
    assert (nothing.line(), rests.line()) == ("nothing", "rests")
    held, _ = stuck.line().split()
    options = ["--hang-seconds=0.5", "--interval=0.2"]
    with serving(child_environment(NPU_AUTOLOAD="0"), *options) as (_, target):
        browser = open_browser(1300, 900, dark=False)
        try:
            browser.get(f"http://{target}/")
            mine = f"pid {stuck.pid}"
            word = "document.querySelector('#headline .word').textContent"
            wait_for(browser, f"{word} === 'hung'")
            found = browser.execute_script(
                """return {
                  rows: [...document.querySelectorAll("#processes tbody tr")]
                    .map((row) => row.textContent),
                  who: document.querySelector("#who").textContent,
                  streams: [...document.querySelectorAll("#streams tbody tr")]
                    .map((row) => row.cells[0].textContent),
                  note: document.querySelector("#others").textContent}"""
            )
            complaints = browser.get_log("browser")
        finally:
            browser.quit()

    assert complaints == []
    [first] = [i for i, row in enumerate(found["rows"]) if mine in row]
    [then] = [i for i, row in enumerate(found["rows"]) if f"pid {rests.pid}" in row]
    assert first < then
    assert not any(f"pid {nothing.pid}" in row for row in found["rows"])
    assert "launched nothing" in found["note"]
    assert found["who"] in found["rows"][0]
    assert held in found["streams"] or mine not in found["who"]


def test_the_page_keeps_up_with_eight_processes_of_sixteen_streams(write_segment):
    browser = open_browser(1300, 900, dark=False)  # first of all: it may skip
    ghosts = [subprocess.Popen(["sleep", "600"]) for _ in range(8)]
    fields = {("StreamBlock.tail", i): 10 + i for i in range(16)}
    for ghost in ghosts:
        folder = write_segment(ghost.pid, fields, streams=16)
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(ServiceConfig(directory=folder, interval=0.2))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        browser.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        drawn = set()
        # Snapshots come five times a second; each is drawn, none piles up.
        WebDriverWait(browser, 60, 0.05).until(
            lambda b: (
                drawn.add(b.execute_script("return document.body.dataset.drawn"))
                or len(drawn) > 5
            )
        )
        found = browser.execute_script(
            LEGEND
            + """return {
              verdicts: document.querySelectorAll("#processes tbody tr").length,
              streams: [...document.querySelectorAll("#streams tbody tr")].map((row) =>
                [row.cells[0].textContent, row.cells[3].textContent.split(" ")[0]]),
              depths: legend("queue")}"""
        )
    finally:
        browser.quit()
        server.should_exit = True
        thread.join()
        for ghost in ghosts:
            ghost.kill()
            ghost.wait()

    assert found["verdicts"] == 8
    assert found["depths"] == dict(found["streams"])
    assert len(set(found["depths"].values())) == 16
