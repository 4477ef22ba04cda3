"""The page of `npu-dispatch plan`: what is in it, of a run that is known."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import open_browser
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

from npu_dispatch.plan import page
from npu_dispatch.plan.analysis import Graph, analyse
from npu_dispatch.plan.record import Recorded
from npu_dispatch.plan.replay import Run, Task, Wait
from npu_dispatch.timeline.tracks import Process

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
    """Elements with their attributes, and the texts of titles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.titles: list[str] = []
        self.loose = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self._in = tag

    def handle_data(self, data):
        if self._in == "title":
            self.titles.append(data)
        elif self._in not in ("style", "script"):
            self.loose += data
        self._in = self._in if self._in in ("style", "script") else ""


@pytest.fixture
def recorded() -> Recorded:
    boundaries = [START, START + 85 * US, START + 170 * US]
    run = Run(TASKS, [WAIT], boundaries, 20 * US, US)
    graph = Graph(None, "item() waits & ends it", "train.py:9")
    report = analyse(
        run, "a <device>", peak_allocated=3 << 20, peak_reserved=4 << 20, graph=graph
    )
    return Recorded(run, report, Process(1, "", [], [], []))


@pytest.fixture
def written(recorded: Recorded, tmp_path: Path) -> Path:
    file = tmp_path / "plan.html"
    page.write([recorded, recorded], file)
    return file


def test_each_task_and_each_wait_is_a_bar_at_its_time(written: Path) -> None:
    parsed = Parsed(written.read_text())

    bars = [attributes for tag, attributes in parsed.found if tag == "rect"]
    assert len(bars) == 2 * (len(TASKS) + 1)  # of two devices
    for task, bar in zip(TASKS, bars, strict=False):
        begin = (task.started - START) / US / SPAN
        assert float(bar["x"].rstrip("%")) == pytest.approx(100 * begin, abs=1e-3)
        assert float(bar["width"].rstrip("%")) == pytest.approx(1000 / SPAN, abs=1e-3)
    streams = [bar["y"] for bar in bars[: len(TASKS)]]
    assert len(set(streams)) == 2 and streams == streams[:2] * 4
    host = bars[len(TASKS)]
    assert float(host["width"].rstrip("%")) == pytest.approx(2500 / SPAN, abs=1e-3)
    assert host["y"] not in streams


def test_a_bar_says_what_it_is(written: Path) -> None:
    parsed = Parsed(written.read_text())

    assert (
        "aten::mm.out: 10.00 µs at 40.0 µs, 20.0 µs after its launch at "
        "train.py:7 in step; 2 queued"
    ) in parsed.titles
    assert "host blocked: item at train.py:9 in step: 25.00 µs" in parsed.titles


def test_what_a_program_is_named_is_text_and_no_element(written: Path) -> None:
    parsed = Parsed(written.read_text())

    assert "b" in {tag for tag, _ in parsed.found}  # figures are bold
    assert any(title.startswith("<b>odd</b>: ") for title in parsed.titles)
    assert "a <device>" in parsed.loose and "item() waits & ends it" in parsed.loose


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
    assert len(text) < 200_000


@pytest.mark.nightly
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_widens_the_picture_and_says_what_is_pointed_at(
    written: Path, dark: bool
) -> None:
    browser = open_browser(1300, 900, dark=dark)
    try:
        browser.get(written.as_uri())
        (one, _) = browser.find_elements(By.CLASS_NAME, "timeline")
        paper = one.find_element(By.CLASS_NAME, "paper")
        before = paper.size["width"]
        one.find_element(By.CSS_SELECTOR, 'input[value="4"]').click()
        after = paper.size["width"]
        third = one.find_elements(By.TAG_NAME, "rect")[2]
        ActionChains(browser).move_to_element(third).perform()
        said = one.find_element(By.TAG_NAME, "output").text
        ticks = [
            group.get_attribute("class")
            for group in one.find_elements(By.CLASS_NAME, "ticks")
            if group.value_of_css_property("display") != "none"
        ]
        ground = browser.execute_script(
            "return getComputedStyle(document.body).backgroundColor"
        )
        complaints = browser.get_log("browser")
    finally:
        browser.quit()

    assert complaints == []
    assert after == 4 * before
    assert said.startswith("<b>odd</b>: 10.00 µs at 60.0 µs")
    assert ticks == ["ticks at-4"]
    assert ground == ("rgb(18, 22, 28)" if dark else "rgb(246, 247, 249)")
