"""The live page in a real browser."""

from __future__ import annotations

import pytest
from browser import wait_for
from prometheus_server import serving

pytestmark = pytest.mark.nightly

OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
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


def test_what_hangs_is_drawn_with_the_host_threads_that_wait(
    trainer, child_environment, browser
):
    program = trainer(STUCK)
    held, behind = program.line().split()
    options = ["--hang-seconds=0.5", "--interval=0.2", str(program.pid)]
    with serving(child_environment(NPU_AUTOLOAD="0"), *options) as (_, target):
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
        assert browser.get_log("browser") == []

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
