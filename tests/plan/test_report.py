"""What a report advises, how its figures are written, and the page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import open_browser, overflowing, violations
from selenium.webdriver.common.by import By

from npu_dispatch.plan import html_page as page
from npu_dispatch.plan.advice import (
    advice,
    choice,
    factor_text,
    fastest,
    memory_text,
    size_text,
    time_text,
)
from npu_dispatch.plan.report import (
    Blame,
    Graph,
    Operator,
    RankTime,
    Report,
    WhatIf,
    analyse,
)
from npu_dispatch.plan.show import show
from npu_dispatch.plan.simulate import Run, Task, Wait

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
        "12.3 GiB of 80.0 GiB",
        "62% measured",
        "24.0 GiB of 24.0 GiB, 3.00 GiB too much",
        "32.0 µs (36%)",  # of ranks
        "writes the first device's timeline for ui.perfetto.dev",
    ):
        assert said in parsed.loose, said
    # One of them is open at a time.
    details = [a for tag, a in parsed.found if tag == "details"]
    assert {a["name"] for a in details} == {"device"}
    assert ["open" in a for a in details] == [True, False, False]
    # Operators that were never measured are marked, of the one that has measurements.
    (_, of_fast, _) = text.split("<h2>Operators</h2>")[1:]
    assert re.search(r"<td>aten::mm.out</td>.*<td>measured</td>", of_fast)
    assert re.search(r"<td>&lt;b&gt;odd.*<td>modelled</td>", of_fast)
    assert text.count("<th>kernel time</th>") == 1
    # Steps of 1, 2 and 8 ranks, of the one that was planned on them.
    rows = text.split("<h2>Ranks</h2>")[1].split("</section>")[0]
    cells = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>", rows)
    wanted = [("1", "81.0", "4"), ("2", "82.0", "8"), ("8", "88.0", "32")]
    assert [(n, step.split()[0], us.split(".")[0]) for n, step, us in cells] == wanted
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
        browser.find_elements(By.TAG_NAME, "summary")[1].click()
        details = browser.find_elements(By.CSS_SELECTOR, "summary + section")
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


LINE = "/home/ada/train.py:12 in step"
LAUNCH_BOUND = Report(
    device="a device",
    step_is="a step of AdamW",
    steps=10,
    step_us=4200.0,
    device_bound=0.02,
    launch_bound=0.97,
    sync_bound=0.01,
    launches=42,
    depth_median=3,
    depth_max=9,
    peak_allocated=3 << 30,
    peak_reserved=4 << 30,
    operators=[Operator("aten::mm", 9, 62.0, 100.0)],
    blames=[Blame(LINE, "launches", 42, 4000.0, 4000.0)],
    what_if=[WhatIf("host 2x faster", 2100.0, 2.0)],
    graph=None,
    notes=[],
)
WAITS = replace(
    LAUNCH_BOUND,
    launch_bound=0.3,
    sync_bound=0.68,
    blames=[Blame(LINE, "item", 1, 1500.0, 1300.0)],
)
DEVICE_BOUND = replace(
    LAUNCH_BOUND,
    device_bound=0.95,
    launch_bound=0.05,
    what_if=[WhatIf("device 2x faster", 2210.0, 1.9)],
)


RANKS = [RankTime(2, 4300.0, 100.0, "device"), RankTime(16, 6000.0, 1200.0, "net")]
REFUSED = Graph(
    None,
    "npu: aten::item (item(), bool()) at /home/ada/train.py:12, on thread 1",
    "/home/ada/train.py:12",
)
SMALL_WAITS = [
    Blame(LINE, "item", 1, 50.0, 50.0),
    Blame(LINE, "full_queue", 9, 4000.0, 2000.0),
]
CAPTURED = replace(LAUNCH_BOUND, graph=Graph(159.0, "", ""))
BUSY = {"launch_bound": 0.0, "device_bound": 0.99}


@pytest.mark.parametrize(
    ("report", "wanted"),
    [
        (
            WAITS,
            ["Remove the wait at train.py:12 (item): the device is idle for 1.3"],
        ),
        # A wait that costs little and a full queue are no advice.
        (replace(LAUNCH_BOUND, blames=SMALL_WAITS), ["A faster device is wasted"]),
        (LAUNCH_BOUND, ["A faster device is wasted: the step waits for launches 97%"]),
        (DEVICE_BOUND, ["The device is the limit: it works 95% of the step, 62.0 µs"]),
        (
            replace(DEVICE_BOUND, what_if=[WhatIf("device 2x faster", 4190.0, 1.0)]),
            ["The host is as busy as the device is: 95% of the step"],
        ),
        (
            CAPTURED,
            [
                "Capture the step in a graph (compile_step): 26.4x faster, 159 µs",
                "A faster device is wasted",
            ],
        ),
        (
            replace(CAPTURED, step_is="a call of GPT"),
            [
                "Capture the step in a graph (torch.npu.graph)",
                "A faster device",
            ],
        ),
        (
            replace(LAUNCH_BOUND, graph=REFUSED),
            [
                "The script cannot be captured as it is: train.py:12: aten::item ",
                "A faster device is wasted",
            ],
        ),
        # A graph is no help where launches are none.
        (replace(LAUNCH_BOUND, graph=REFUSED, **BUSY), ["The device is the limit"]),
        (
            replace(WAITS, too_much=int(3.1 * 2**30), too_much_at="/train.py:88 in f"),
            ["It does not fit: 3.10 GiB too much at train.py:88", "Remove the wait"],
        ),
        # Of the most ranks.
        (
            replace(LAUNCH_BOUND, ranks=RANKS),
            [
                "A faster device is wasted",
                "Overlap communication with work, or send less: on 16 ranks 1.20 ms",
            ],
        ),
    ],
)
def test_a_report_advises_what_its_figures_say(report: Report, wanted: list[str]):
    found = [one.text for one in advice(report)]

    assert len(found) == len(wanted), found
    for text, beginning in zip(found, wanted, strict=True):
        assert text.startswith(beginning), found


def test_advice_says_where_and_what_it_gains_the_most_first_and_at_most_four() -> None:
    (one,) = advice(WAITS)
    assert one.gain_us == 1300.0 and "at train.py:12" in one.text

    waits = [Blame(f"a.py:{i}", "item", 1, 0.0, 300.0 + i) for i in range(9)]
    found = advice(replace(CAPTURED, blames=waits))

    gains = [one.gain_us for one in found]
    assert len(found) == 4 and gains == sorted(gains, reverse=True)
    for one, place in zip(found[2:], ("a.py:8", "a.py:7"), strict=True):
        assert f"at {place}" in one.text


def test_the_fastest_device_is_one_that_the_program_fits_on() -> None:
    small = replace(DEVICE_BOUND, device="small", step_us=1000.0, too_much=1)
    slow = replace(DEVICE_BOUND, device="slow", step_us=9000.0)

    assert fastest([small, slow, DEVICE_BOUND]) is DEVICE_BOUND
    assert fastest([small]) is None
    assert choice([small, small]) == "The program fits on none of these devices."
    assert choice([slow, DEVICE_BOUND]) == "Shortest step: a device, 4.20 ms."
    assert choice([DEVICE_BOUND]) == ""


def test_devices_that_are_as_fast_are_said_to_be() -> None:
    near = replace(DEVICE_BOUND, device="near", step_us=DEVICE_BOUND.step_us * 1.02)

    assert "near is as fast: the host is the limit" in choice([DEVICE_BOUND, near])
    other = replace(LAUNCH_BOUND, device="other", step_us=9000.0)
    assert "a faster one is wasted" in choice([LAUNCH_BOUND, other])


def test_the_terminal_says_first_what_to_do(capsys) -> None:
    show([WAITS])

    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("what to do 1. Remove the wait at train.py:12 (item)")


def test_figures_have_three_digits() -> None:
    for us, text in (
        (0, "0 µs"),
        (0.51234, "0.512 µs"),
        (159.06, "159 µs"),
        (999.6, "1.00 ms"),
        (5_280_700, "5.28 s"),
        (5_280_700_000, "5,281 s"),
    ):
        assert time_text(us) == text
    assert time_text(5280.7, 5100, 5600) == "5.28 ms (5.10\N{EN DASH}5.60)"
    assert size_text(346 << 10) == "346 KiB"
    assert memory_text(346 << 10, 24 << 30) == "346 KiB of 24.0 GiB"
    assert memory_text(3 << 20, 0) == "3.00 MiB"
    assert factor_text(18.72) == "18.7x"
