"""The live page in a real browser."""

from __future__ import annotations

import base64
import socket
import subprocess
import threading
from pathlib import Path

import pytest
import uvicorn
from browser import open_browser
from prometheus_server import serving
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from npu_dispatch.service.app import ServiceConfig, create_app

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]

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


# Legends by label, and where on a chart colours are: the middle of their rows.
LEGEND = """
const legend = (id) => Object.fromEntries(
  [...document.querySelectorAll(`#${id} .u-series`)].map((entry) =>
    [entry.querySelector(".u-label").textContent,
     entry.querySelector(".u-value").textContent]));
const rowsOf = (id, hues) => {
  const canvas = document.querySelector(`#${id} canvas`);
  const paper = canvas.getContext("2d");
  const { data } = paper.getImageData(0, 0, canvas.width, canvas.height);
  return hues.map((hue) => {
    paper.fillStyle = getComputedStyle(document.body).getPropertyValue(hue);
    const wanted = [1, 3, 5].map((at) =>
      parseInt(paper.fillStyle.slice(at, at + 2), 16));
    const rows = [];
    for (let at = 0; at < data.length; at += 4) {
      const near = wanted.every((value, i) => Math.abs(value - data[at + i]) < 12);
      if (near && data[at + 3] > 128) rows.push(Math.floor(at / 4 / canvas.width));
    }
    return rows.reduce((sum, row) => sum + row, 0) / rows.length;
  });
};
"""


def save_picture(browser: webdriver.Chrome, name: str) -> None:
    """Leave the whole page as out/page_NAME.png, for people to look at."""
    picture = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"}
    )
    (ROOT / "out").mkdir(exist_ok=True)
    file = ROOT / "out" / f"page_{name}.png"
    file.write_bytes(base64.b64decode(picture["data"]))


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
            WebDriverWait(browser, 60).until(
                lambda b: b.execute_script("return document.body.dataset.drawn")
            )
            found = browser.execute_script(
                LEGEND
                + """return {
                  verdict: document.querySelector(".verdict").textContent,
                  streams: [...document.querySelectorAll("#streams tbody tr")]
                    .map((row) => row.cells[0].textContent),
                  bars: [...document.querySelectorAll("#time .row")].map((row) =>
                    [...row.querySelectorAll(".bar i")].map((part) =>
                      part.getBoundingClientRect().width)),
                  named: [...document.querySelectorAll("#time .row .name")]
                    .map((name) => name.textContent),
                  depths: legend("depth"), waits: legend("syncs"),
                  memory: legend("memory"),
                  lines: rowsOf("memory", ["--hue-1", "--hue-3"]),
                  ground: getComputedStyle(document.body).backgroundColor,
                  width: document.documentElement.scrollWidth,
                  inner: document.documentElement.clientWidth}"""
            )
            save_picture(browser, name)
            complaints = browser.get_log("browser")
        finally:
            browser.quit()

    assert complaints == []
    assert f"pid {program.pid}" in found["verdict"]
    assert found["streams"][0] == "0:0"
    assert len(found["streams"]) == 4
    assert found["named"] == found["streams"]
    # Busy, starved, waiting and idle of each stream fill its bar, whatever they are.
    assert [len(parts) for parts in found["bars"]] == [4] * 4
    assert len({round(sum(parts)) for parts in found["bars"]}) == 1
    # The newest values, as nobody points: all is done, and a @ a is 64 x 64 floats.
    del found["depths"]["time"]
    assert found["depths"] == dict.fromkeys(found["streams"], "0")
    assert {"item", "device sync"} <= set(found["waits"])
    assert found["memory"]["reserved"].endswith(" MiB")
    reserved, deferred = found["lines"]
    assert reserved < deferred  # rows are counted from the top; deferred is 0
    assert found["width"] <= found["inner"]
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
            WebDriverWait(browser, 60).until(
                lambda b: b.execute_script(
                    """return document.querySelectorAll("#waits .node").length == 4
                      && document.querySelectorAll("#waiting tbody tr").length == 2"""
                )
            )
            found = browser.execute_script(
                """return {
                  verdict: document.querySelector(".verdict b").textContent,
                  nodes: [...document.querySelectorAll("#waits .who")]
                    .map((node) => node.textContent),
                  waiting: [...document.querySelectorAll("#waiting tbody tr")]
                    .map((row) => [...row.cells].map((cell) => cell.textContent)),
                  width: document.documentElement.scrollWidth,
                  inner: document.documentElement.clientWidth}"""
            )
            save_picture(browser, name)
            complaints = browser.get_log("browser")
        finally:
            browser.quit()

    assert complaints == []
    assert found["verdict"].startswith("hung: ")
    assert "external event wait" in found["verdict"]
    assert "the host waits at <string>:" in found["verdict"]
    assert sorted(found["nodes"])[:2] == sorted([held, behind])
    assert "host main" in found["nodes"] and len(found["nodes"]) == 4
    [main] = [row for row in found["waiting"] if row[0] == "main"]
    assert main[1:4] == ["<string>:16 in <module>", "stream sync", behind]
    assert float(main[4]) > 0
    [other] = [row for row in found["waiting"] if row[0] != "main"]
    assert other[1:4] == ["<string>:14 in evaluate", "item", held]
    assert found["width"] <= found["inner"]


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
            WebDriverWait(browser, 60).until(
                lambda b: b.execute_script(
                    """return document.querySelector(".verdict")
                      ?.textContent.startsWith("hung")"""
                )
            )
            found = browser.execute_script(
                """return {
                  cards: [...document.querySelectorAll(".verdict small")]
                    .map((card) => card.textContent),
                  shown: document.querySelector(".verdict[aria-pressed=true] small")
                    .textContent,
                  select: document.querySelector("#process").selectedOptions[0]
                    .textContent,
                  streams: [...document.querySelectorAll("#streams tbody tr")]
                    .map((row) => row.cells[0].textContent),
                  note: document.querySelector("#verdicts p").textContent}"""
            )
            save_picture(browser, "attention")
            browser.execute_script(
                "[...document.querySelectorAll('.verdict')].at(-1).click()"
            )
            WebDriverWait(browser, 60).until(
                lambda b: b.execute_script(
                    """return document.querySelector(".verdict:last-of-type")
                      .getAttribute("aria-pressed") === "true" """
                )
            )
            complaints = browser.get_log("browser")
        finally:
            browser.quit()

    assert complaints == []
    pids = [int(card.rpartition(" ")[2]) for card in found["cards"]]
    assert pids.index(stuck.pid) < pids.index(rests.pid)
    assert nothing.pid not in pids and "launched nothing" in found["note"]
    assert found["shown"] == found["cards"][0] == found["select"]
    assert held in found["streams"] or pids[0] != stuck.pid


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
              verdicts: document.querySelectorAll(".verdict").length,
              streams: [...document.querySelectorAll("#streams tbody tr")]
                .map((row) => [row.cells[0].textContent, row.cells[2].textContent]),
              depths: legend("depth")}"""
        )
    finally:
        browser.quit()
        server.should_exit = True
        thread.join()
        for ghost in ghosts:
            ghost.kill()
            ghost.wait()

    assert found["verdicts"] == 8
    del found["depths"]["time"]
    assert found["depths"] == dict(found["streams"])
    assert len(set(found["depths"].values())) == 16
