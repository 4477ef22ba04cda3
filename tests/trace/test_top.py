"""`ps` and `top`: rows of figures, from outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import ClassVar

import torch
from missing import need_module

from npu_dispatch import _C
from npu_dispatch.observe.judge import top


def row_of_this_process(rows):
    return next(row for row in rows if row.pid == os.getpid())


def test_this_process_and_its_streams_are_listed():
    torch.npu.init()
    sampler = top.Sampler([os.getpid()])
    sampler.sample()
    started = time.monotonic()
    for _ in range(160):
        _C.submit_nothing()
    torch.npu.synchronize()
    took_us = (time.monotonic() - started) * 1e6
    processes, streams = sampler.sample()
    process = row_of_this_process(processes)
    default = next(s for s in streams if s.stream == 0)
    assert process.streams == len(streams)
    assert process.submitted >= default.submitted >= 160
    assert default.tasks_per_s > 0
    # No task took longer than all of them; a bucket is up to a quarter wide.
    assert 0 < default.latency_us_p50 <= default.latency_us_p99 <= 1.25 * took_us


# Each says when it is done, and stays.
STAYS = """
import sys, torch
{}
print("done", flush=True)
sys.stdin.readline()
"""
PROGRAMS = {
    "waits": "torch.npu.init()",
    "rests": "torch.ones(3, device='npu') + 1; torch.npu.synchronize()",
    "fails": """
w, i = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
torch.nn.functional.embedding(i, w)
try:
    torch.npu.synchronize()
except IndexError:
    pass
""",
}


def test_who_needs_people_is_first_and_who_launched_nothing_is_hidden(
    child_environment, tmp_path
):
    started = []
    for name, code in PROGRAMS.items():
        script = tmp_path / f"{name}.py"
        script.write_text(STAYS.format(code))
        started.append(
            subprocess.Popen(
                [sys.executable, "-u", str(script), "--lr", "1"],
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
    try:
        for child in started:
            assert child.stdout.readline() == b"done\n"
        pids = {child.pid for child in started}

        rows, streams = top.Sampler().sample()
        everybody, _ = top.Sampler(everybody=True).sample()
        rows = [row for row in rows if row.pid in pids]
        streams = [row for row in streams if row.pid in pids]
        everybody = [row for row in everybody if row.pid in pids]

        assert [row.name for row in rows] == ["fails.py", "rests.py"]
        assert rows[0].verdict == "failed"
        assert {row.pid for row in streams} == {row.pid for row in rows}
        assert everybody[0].name == "fails.py"
        assert {row.name for row in everybody} == {"fails.py", "rests.py", "waits.py"}
    finally:
        for child in started:
            child.kill()
            child.communicate()


def npu_dispatch(environment, *args):
    return subprocess.run(
        [sys.executable, "-m", "npu_dispatch", *args],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_commands_print_tables_and_json(child_environment):
    torch.npu.init()
    pid = str(os.getpid())
    assert pid in npu_dispatch(child_environment, "ps")
    listed = json.loads(npu_dispatch(child_environment, "ps", "--json"))
    assert os.getpid() in [row["pid"] for row in listed]
    once = npu_dispatch(child_environment, "top", "--once", "--interval", "0", pid)
    assert "npu:0/0" in once
    sample = json.loads(
        npu_dispatch(child_environment, "top", "--json", "--interval", "0", pid)
    )
    assert {row["pid"] for row in sample["streams"]} == {os.getpid()}


def test_the_screen_shows_the_rows_and_keeps_the_cursor():
    textual = need_module("textual.widgets")
    torch.npu.init()

    async def main():
        app = top.live_screen(top.Sampler([os.getpid()]), 1000.0)
        async with app.run_test() as pilot:
            streams = app.query_one("#streams", textual.DataTable)
            assert streams.row_count >= 1
            assert str(streams.get_row_at(0)[0]) == str(os.getpid())
            app.refresh_rows()
            assert streams.row_count >= 1
            await pilot.press("p")
            assert app.paused

    asyncio.run(main())


class Fixed:
    """A sampler of one process that calls itself what looks like markup."""

    collectives: ClassVar[list[top.CollectiveRow]] = []

    def sample(self):
        words = ("[/x].py", "0", "f(list[int])", "idle", "", "")
        row = top.ProcessRow(7, *words, *[0] * 7)
        return [row], []


def test_the_screen_takes_no_name_for_markup():
    textual = need_module("textual.widgets")

    async def main():
        app = top.live_screen(Fixed(), 1000.0)
        async with app.run_test(size=(200, 24)) as pilot:
            await pilot.pause()
            table = app.query_one("#processes", textual.DataTable)
            shown = "\n".join(table.render_line(i).text for i in range(3))
            assert "[/x].py" in shown and "f(list[int])" in shown

    asyncio.run(main())
