"""The page of `npu-dispatch plan`: what is in it, of a run that is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import open_browser, overflowing, violations
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

from npu_dispatch.plan.analysis import Graph, RankTime, analyse
from npu_dispatch.plan.page import page
from npu_dispatch.plan.page.hues import hues_of
from npu_dispatch.plan.page.timeline import places
from npu_dispatch.plan.run import Run, Task, Wait
from npu_dispatch.plan.study import Recorded

US = 1000.0  # in ns
START = 5_000_000.0
# 8 tasks of 10 µs, one each 20 µs from 20 µs on, on two streams; then the host waits.
TASKS = [
    Task(
        name="aten::mm.out" if i % 2 else "<b>odd</b>",
        stream=(0, 32 * (i % 2)),
        number=i // 2 + 1,
        submitted=START + 20 * i * US,
        started=START + (20 * i + 20) * US,
        ended=START + (20 * i + 30) * US,
        depth=i + 1,
        runs=True,
        where="train.py:7 in step",
    )
    for i in range(8)
]
SPAN = 170.0  # µs, from the first submission to the last end
WAIT = Wait("item", "train.py:9 in step", START + 145 * US, START + 170 * US)


class Parsed(HTMLParser):
    """Elements with their attributes, and the texts that are not in titles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.loose = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self._in = tag

    def handle_data(self, data):
        if self._in not in ("style", "script", "title"):
            self.loose += data
        self._in = self._in if self._in in ("style", "script") else ""

    @property
    def bars(self) -> list[dict[str, str]]:
        return [a for tag, a in self.found if tag == "rect" and "data-b" in a]

    def words(self, number: int) -> list[str]:
        """Return the texts that the bars of a device name by their numbers."""
        every = [a["data-words"] for _, a in self.found if "data-words" in a]
        return json.loads(every[number])

    def says(self, bar: dict[str, str], number: int = 0) -> list[str]:
        """Return a bar's name, line and figures."""
        name, where, *figures = bar["data-b"].split(",")
        words = self.words(number)
        return [words[int(name)], words[int(where)], *figures]


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


@pytest.fixture
def recorded() -> Recorded:
    boundaries = [START, START + 85 * US, START + 170 * US]
    run = Run(TASKS, [WAIT], boundaries)
    graph = Graph(None, "item() waits & ends it", "train.py:9")
    report = analyse(
        run, "a <device>", peak_allocated=3 << 20, peak_reserved=4 << 20, graph=graph
    )
    report = replace(report, script="/home/ada/<train>.py")
    return Recorded(run, report)


@pytest.fixture
def others(recorded: Recorded) -> list[Recorded]:
    """Two devices more: one is the fastest, the other one is too small."""

    def with_report(**change: object) -> Recorded:
        return replace(recorded, report=replace(recorded.report, **change))

    ranks = [RankTime(n, 80.0 + n, 4.0 * n, "device") for n in (1, 2, 8)]
    fast = with_report(
        device="fast",
        step_us=20.0,
        least_us=19.0,
        most_us=23.0,
        memory=80 << 30,
        peak_allocated=int(12.3 * 2**30),
        measured=0.62,
        operators=[
            replace(operator, measured=float(operator.name == "aten::mm.out"))
            for operator in recorded.report.operators
        ],
        graph=Graph(10.0, "", ""),
        ranks=ranks,
    )
    small = with_report(
        device="small",
        step_us=10.0,
        memory=24 << 30,
        peak_allocated=24 << 30,
        too_much=3 << 30,
        too_much_at="train.py:88 in step",
    )
    return [fast, small]


@pytest.fixture
def written(recorded: Recorded, others: list[Recorded], tmp_path: Path) -> Path:
    file = tmp_path / "plan.html"
    page.write([recorded, *others], file)
    return file


def test_each_task_and_each_wait_is_a_bar_at_its_time(written: Path) -> None:
    parsed = Parsed(written.read_text())

    bars = parsed.bars
    assert len(bars) == 3 * (len(TASKS) + 1)  # of three devices
    host, *of_streams = bars[: len(TASKS) + 1]
    assert percent(host["width"]) == pytest.approx(2500 / SPAN, abs=1e-3)
    assert host["class"] == "w"
    by_start = sorted(of_streams, key=lambda bar: percent(bar["x"]))
    for task, bar in zip(TASKS, by_start, strict=True):
        begin = (task.started - START) / US / SPAN
        assert percent(bar["x"]) == pytest.approx(100 * begin, abs=1e-3)
        assert percent(bar["width"]) == pytest.approx(1000 / SPAN, abs=1e-3)


def test_a_bar_says_what_it_is(written: Path) -> None:
    parsed = Parsed(written.read_text())

    host, *of_streams = parsed.bars[: len(TASKS) + 1]
    assert parsed.says(host) == ["item", "train.py:9 in step", "25"]
    # Its name and line, how long, when, how long after its launch, how many queued.
    assert parsed.says(of_streams[4]) == [
        *("aten::mm.out", "train.py:7 in step"),
        *("10", "40", "20", "2"),
    ]


def test_rows_are_streams_and_what_moves_data_has_its_own(recorded: Recorded) -> None:
    kinds = ["kernel", "copy", "collective", "kernel"]
    tasks = [
        replace(task, kind=kind) for task, kind in zip(TASKS[:4], kinds, strict=True)
    ]
    run = replace(recorded.run, tasks=tasks)
    drawn = places(run, hues_of(task.name for task in tasks))

    assert [name for _, name, _ in drawn["rows"]] == [
        *("stream 0:0", "stream 0:32", "copies 0:32", "collectives 0:0")
    ]
    tops = [top for top, _, _ in drawn["rows"]]
    assert tops == sorted(set(tops)) and drawn["host"]["y"] < tops[0]


def test_memory_in_use_is_an_area_of_each_device(recorded: Recorded) -> None:
    in_use = [100, 100, 300, 300, 200, 200, 0, 0]
    tasks = [
        replace(task, allocated=n * 1024) for task, n in zip(TASKS, in_use, strict=True)
    ]
    # Two steps of 60 µs, from the second launch on.
    bounds = [START + us * US for us in (20, 80, 140)]
    run = replace(recorded.run, tasks=tasks, boundaries=bounds)

    queue, memory = places(run, hues_of(task.name for task in tasks))["areas"]

    assert (queue["name"], memory["name"]) == ("queue", "memory")
    assert memory["most"] == "300 KiB" and queue["y"] < memory["y"]
    # At the launches, of 150 µs in all; heights of 1000, from the top.
    assert memory["path"] == ("M0 1000H0V667H13333V0H40000V333H66667V1000H100000V1000Z")

    tasks = [replace(task, stream=(i % 2, 0)) for i, task in enumerate(tasks)]
    run = replace(run, tasks=tasks)
    areas = places(run, hues_of(task.name for task in tasks))["areas"]
    assert [area["name"] for area in areas] == ["queue", "memory 0", "memory 1"]


def test_only_the_last_steps_are_drawn(recorded: Recorded) -> None:
    bounds = [START + 20 * i * US for i in range(9)]
    run = replace(recorded.run, boundaries=bounds)
    drawn = places(run, hues_of(task.name for task in TASKS))

    bars = [bar for _, _, row in drawn["rows"] for bar in row]
    # Two steps of 20 µs, and after them a task that ends 10 µs later.
    assert drawn["steps"] == ["0", "40", "80"]
    assert [bar.width for bar in bars] == ["20"] * 3


def test_the_page_says_what_to_do_and_sets_the_devices_side_by_side(
    written: Path, recorded: Recorded, tmp_path: Path
) -> None:
    text = written.read_text()
    parsed = Parsed(text)

    for said in (
        "Remove the wait at train.py:9 (item)",
        "Capture the step in a graph",
        "It does not fit: 3.00 GiB too much at train.py:88",
        "Shortest step: fast, 20.0 µs.",
        "20.0 µs (19.0\N{EN DASH}23.0)",
        "12.3 of 80 GiB",
        "62% measured",
        "24.0 of 24 GiB, 3.00 GiB too much",
        "32.0 µs (36%)",  # of ranks
    ):
        assert said in parsed.loose, said
    assert len(re.findall(r'<td class="[^"]*bad', text)) == 1
    assert re.findall(r'<th class="best">(\w+)', text) == ["fast"]
    switches = [a for _, a in parsed.found if a.get("name") == "device"]
    assert [a["id"] for a in switches] == ["device-0", "device-1", "device-2"]
    # Operators that were never measured are marked, of the one that has measurements.
    (_, of_fast, _) = text.split("<h2>Operators</h2>")[1:]
    assert re.search(r"<td>aten::mm.out</td>.*<td>measured</td>", of_fast)
    assert re.search(r"<td>&lt;b&gt;odd.*<td>modelled</td>", of_fast)
    assert text.count("<th>kernel time</th>") == 1
    # Steps of 1, 2 and 8 ranks: as far apart as their logarithms.
    lines = re.findall(r'<polyline points="([^"]*)"', text)
    assert len(lines) == 2
    xs = [float(point.split(",")[0]) for point in lines[0].split()]
    assert xs[2] - xs[0] == pytest.approx(3 * (xs[1] - xs[0]), abs=0.3)
    alone = tmp_path / "alone.html"
    page.write([recorded], alone)
    assert "<h2>Ranks" not in alone.read_text()


def test_what_a_program_is_named_is_text_and_no_element(written: Path) -> None:
    parsed = Parsed(written.read_text())

    assert {"b", "train", "device"}.isdisjoint({tag for tag, _ in parsed.found})
    assert "<b>odd</b>" in parsed.words(0)
    assert "a <device>" in parsed.loose and "item() waits & ends it" in parsed.loose
    assert "Plan of <train>.py" in parsed.loose


def test_the_page_loads_nothing(written: Path) -> None:
    text = written.read_text()
    parsed = Parsed(text)

    addresses = {
        value
        for _, attributes in parsed.found
        for name, value in attributes.items()
        if name in ("src", "href")
    }
    assert addresses == {"data:,"}
    assert not re.search(r"https?://|@import|url\(", text)
    (policy,) = (
        attributes["content"]
        for tag, attributes in parsed.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")


def test_a_page_of_three_long_runs_is_small(recorded: Recorded, tmp_path: Path) -> None:
    tasks = []
    for i in range(1500):
        at = START + 7.123 * i * US
        name = f"aten::an_operator_with_a_long_name_{i % 40}.out"
        where = f"/home/ada/program/train.py:{i % 90} in Module.forward"
        times = (at, at + 4.321 * US, at + 9.876 * US)
        tasks.append(Task(name, (0, 0), i + 1, *times, 1 + i % 37, True, where=where))
    bounds = [START + us * US for us in (0, 5_000, 10_700)]
    run = replace(recorded.run, tasks=tasks, boundaries=bounds)
    one = Recorded(run, recorded.report)
    file = tmp_path / "large.html"
    page.write([one, one, one], file)

    assert len(Parsed(file.read_text()).bars) > 3 * 1490
    assert file.stat().st_size < 600_000


@pytest.mark.nightly
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_widens_the_picture_and_says_what_is_pointed_at(
    written: Path, dark: bool
) -> None:
    browser = open_browser(1300, 900, dark=dark)
    try:
        browser.get(written.as_uri())
        (first, second, _) = browser.find_elements(By.CLASS_NAME, "timeline")
        browser.find_elements(By.CSS_SELECTOR, ".tabs label")[1].click()
        seen = [first.is_displayed(), second.is_displayed()]
        paper = second.find_element(By.CLASS_NAME, "paper")
        before = paper.size["width"]
        second.find_element(By.CSS_SELECTOR, 'input[value="4"]').click()
        after = paper.size["width"]
        # What was in the middle is there still: a task that begins soon after it.
        task = second.find_elements(By.CSS_SELECTOR, ".row rect")[6]
        ActionChains(browser).move_to_element(task).perform()
        said = second.find_element(By.TAG_NAME, "output").text
        ticks = [
            group.get_attribute("class")
            for group in second.find_elements(By.CLASS_NAME, "ticks")
            if group.value_of_css_property("display") != "none"
        ]
        ground = browser.execute_script(
            "return getComputedStyle(document.body).backgroundColor"
        )
        complaints = browser.get_log("browser")
    finally:
        browser.quit()

    assert complaints == []
    assert seen == [False, True]
    assert after == 4 * before
    assert said.startswith("aten::mm.out: 10 µs at 120 µs")
    assert ticks == ["ticks at-4"]
    assert ground == ("rgb(18, 22, 28)" if dark else "rgb(246, 247, 249)")


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1200, 600])
def test_the_page_is_as_wide_as_the_screen(written: Path, width: int) -> None:
    browser = open_browser(width, 900, dark=False)
    try:
        browser.get(written.as_uri())
        found = overflowing(browser), violations(browser)
    finally:
        browser.quit()

    assert found == ([], [])
