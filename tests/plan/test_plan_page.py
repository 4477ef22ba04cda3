"""The page of `npu-dispatch plan`: what is in it, of a run that is known."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import open_browser, overflowing, violations
from selenium.webdriver.common.by import By

from npu_dispatch.plan.analysis import Graph, RankTime, Report, analyse
from npu_dispatch.plan.page import page
from npu_dispatch.plan.run import Run, Task, Wait

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
        if self._in not in ("style", "title"):
            self.loose += data
        self._in = self._in if self._in == "style" else ""


@pytest.fixture
def report() -> Report:
    boundaries = [START, START + 85 * US, START + 170 * US]
    run = Run(TASKS, [WAIT], boundaries)
    graph = Graph(None, "item() waits & ends it", "train.py:9")
    report = analyse(
        run, "a <device>", peak_allocated=3 << 20, peak_reserved=4 << 20, graph=graph
    )
    return replace(report, script="/home/ada/<train>.py")


@pytest.fixture
def others(report: Report) -> list[Report]:
    """Two devices more: one is the fastest, the other one is too small."""
    ranks = [RankTime(n, 80.0 + n, 4.0 * n, "device") for n in (1, 2, 8)]
    fast = replace(
        report,
        device="fast",
        step_us=20.0,
        least_us=19.0,
        most_us=23.0,
        memory=80 << 30,
        peak_allocated=int(12.3 * 2**30),
        measured=0.62,
        operators=[
            replace(operator, measured=float(operator.name == "aten::mm.out"))
            for operator in report.operators
        ],
        graph=Graph(10.0, "", ""),
        ranks=ranks,
    )
    small = replace(
        report,
        device="small",
        step_us=10.0,
        memory=24 << 30,
        peak_allocated=24 << 30,
        too_much=3 << 30,
        too_much_at="train.py:88 in step",
    )
    return [fast, small]


@pytest.fixture
def written(report: Report, others: list[Report], tmp_path: Path) -> Path:
    file = tmp_path / "plan.html"
    page.write([report, *others], file)
    return file


def test_the_page_says_what_to_do_and_sets_the_devices_side_by_side(
    written: Path, report: Report, tmp_path: Path
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
        "writes the first device's timeline for ui.perfetto.dev",
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
    page.write([report], alone)
    assert "<h2>Ranks" not in alone.read_text()


def test_what_a_program_is_named_is_text_and_no_element(written: Path) -> None:
    parsed = Parsed(written.read_text())

    assert {"b", "train", "device"}.isdisjoint({tag for tag, _ in parsed.found})
    assert "<b>odd</b>" in parsed.loose
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
    assert not re.search(r"https?://|@import|url\(|<script", text)
    (policy,) = (
        attributes["content"]
        for tag, attributes in parsed.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")


@pytest.mark.nightly
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_the_details_of_the_chosen_device(
    written: Path, dark: bool
) -> None:
    browser = open_browser(1300, 900, dark=dark)
    try:
        browser.get(written.as_uri())
        browser.find_elements(By.CSS_SELECTOR, ".tabs label")[1].click()
        details = browser.find_elements(By.CLASS_NAME, "details")
        seen = [one.is_displayed() for one in details]
        ground = browser.execute_script(
            "return getComputedStyle(document.body).backgroundColor"
        )
        complaints = browser.get_log("browser")
    finally:
        browser.quit()

    assert complaints == []
    assert seen == [False, True, False]
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
