"""What the live page makes of snapshots that are known, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import (
    overflowing,
    set_scheme,
    set_size,
    violations,
    wait_for,
)
from page_feed import PageFeed, ranks, snapshot, with_trend, with_verdict
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from npu_dispatch.observe.judge.rates import Reading
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.snapshot import process_values

pytestmark = pytest.mark.nightly

KINDS = (
    *("hung", "failed", "blocked", "held", "device-bound", "launch-bound"),
    *("host-bound", "quiet", "idle"),
)
Process = dict[str, Any]
# Keeps what the page has heard last.
LISTEN = """const parse = JSON.parse;
JSON.parse = (data) => (window.heard = parse(data));"""


@pytest.fixture
def feed(chromium, tmp_path_factory) -> Iterator[PageFeed]:
    with PageFeed(tmp_path_factory.mktemp("none")) as served:
        yield served


@pytest.fixture
def process(write_segment, ghost) -> Process:
    """A process whose two streams have tasks, as the service tells of it."""
    fields = {("StreamBlock.tail", 0): 40, ("StreamBlock.tail", 1): 9}
    with Processes(directory=write_segment(ghost, fields, streams=2)) as processes:
        [view] = processes.refresh()
    values = process_values(None, Reading(view), 10.0)
    values |= {"name": "train.py", "id": "0", "rank": ""}
    return with_trend(with_verdict(values, "device-bound"), waits={})


@pytest.fixture
def show(browser, feed) -> Callable[..., None]:
    """show(snapshot) sends one, and returns once it has been drawn."""

    def send(*snapshots: dict[str, Any]) -> None:
        if browser.current_url != feed.url:
            browser.get(feed.url)
        for one in snapshots:
            feed.send(one)
        drawn(browser, snapshots[-1]["tick"])

    return send


def drawn(browser, tick: float) -> None:
    wait_for(browser, f"Number(document.body.dataset.drawn) === {tick}")


def text(browser, selector: str) -> str:
    found: str = browser.execute_script(
        f"return document.querySelector('{selector}').textContent"
    )
    return found


def visible(browser, selector: str) -> bool:
    return all(
        e.is_displayed() for e in browser.find_elements(By.CSS_SELECTOR, selector)
    )


def legend(browser, id_: str) -> dict[str, str]:
    found: dict[str, str] = browser.execute_script(
        f"""return Object.fromEntries(
          [...document.querySelectorAll("#{id_} .u-series")].slice(1).map((entry) =>
            [...entry.querySelectorAll(".u-label, .u-value")]
              .map((one) => one.textContent)))"""
    )
    return found


def two(process: Process) -> tuple[Process, Process]:
    other = process | {"id": "1", "pid": process["pid"] + 1, "name": "eval.py"}
    return process, other


def test_the_page_keeps_up_with_eight_processes_of_sixteen_streams(
    browser, show, write_segment, ghost
):
    fields = {("StreamBlock.tail", i): 10 + i for i in range(16)}
    with Processes(directory=write_segment(ghost, fields, streams=16)) as processes:
        [view] = processes.refresh()
    several = ranks(process_values(None, Reading(view), 10.0), 8, slow=0)
    for tick in range(6):  # each is drawn, none piles up
        show(snapshot(tick, *several))
    rows = browser.execute_script(
        """return [...document.querySelectorAll("#streams tbody tr")].map((row) =>
          [row.cells[0].textContent, row.cells[3].textContent.split(" ")[0]])"""
    )

    browser.execute_script(
        "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    show(snapshot(6, *several))

    assert len(browser.find_elements(By.CSS_SELECTOR, "#processes tbody tr")) == 8
    assert legend(browser, "queue") == dict(rows)
    assert len({depth for _, depth in rows}) == 16
    assert {"reserved", "deferred"} <= legend(browser, "memory").keys()
    assert browser.get_log("browser") == []


def test_focus_and_clicks_outlive_new_figures(browser, show, process):
    first, second = two(process)
    show(snapshot(1, first, second))
    button = browser.find_elements(By.CSS_SELECTOR, "#processes button")[1]
    assert "eval.py" in button.text
    ActionChains(browser).move_to_element(button).click_and_hold().perform()

    # It needs people first now, so its row belongs to the other place.
    for tick in (2, 3):
        hurt = with_verdict(second, "blocked", text=f"blocked: {tick}")
        show(snapshot(tick, first, hurt))
    focused = browser.switch_to.active_element
    ActionChains(browser).release().perform()

    assert focused == button
    wait_for(browser, "document.querySelector('#who').textContent.includes('eval')")
    assert button.get_attribute("aria-pressed") == "true"
    assert browser.switch_to.active_element == button


def test_the_page_opens_on_who_needs_people_and_hides_who_launched_nothing(
    browser, show, process
):
    first, second = two(process)
    nothing = process | {"id": "2", "pid": 99, "launched": False}
    show(snapshot(1, first, nothing, with_verdict(second, "hung")))

    rows = browser.find_elements(By.CSS_SELECTOR, "#processes tbody tr")
    named = [row.find_element(By.TAG_NAME, "button").text for row in rows]
    assert ["eval.py" in named[0], "train.py" in named[1]] == [True, True]
    assert len(named) == 2
    assert "eval.py" in text(browser, "#who")
    assert (
        text(browser, "#others") == "1 process has launched nothing and is not shown."
    )


def test_screen_readers_hear_of_another_kind_and_no_more(browser, show, process):
    show(snapshot(1, process))
    browser.execute_script(
        """window.heard = [];
        for (const one of document.querySelectorAll(
            "[aria-live], [role=status], [role=alert]")) {
          new MutationObserver(() => window.heard.push(one.textContent))
            .observe(one, { childList: true, characterData: true, subtree: true });
        }"""
    )
    show(snapshot(2, with_verdict(process, "device-bound", text="device busy 91 %")))
    show(snapshot(3, with_verdict(process, "device-bound", text="device busy 92 %")))
    before = browser.execute_script("return window.heard")
    show(snapshot(4, with_verdict(process, "hung", text="hung: no progress for 11 s")))
    show(snapshot(5, with_verdict(process, "hung", text="hung: no progress for 12 s")))

    assert before == []
    [said] = browser.execute_script("return window.heard")
    assert "hung" in said and "no progress for 11 s" in said
    assert "12 s" in text(browser, "#headline .text")


def test_the_charts_go_with_the_last_process(browser, show, process):
    show(snapshot(1, process), snapshot(2, process))
    assert browser.find_elements(By.CSS_SELECTOR, ".uplot")

    show(snapshot(3))

    assert not browser.find_elements(By.CSS_SELECTOR, ".uplot")
    assert not visible(browser, "#evidence") and not visible(browser, "#headline")
    assert "train.py" in text(browser, "#ended")
    assert browser.title == "npu_dispatch"


def test_the_title_of_the_tab_has_the_verdict(browser, show, process):
    show(snapshot(1, with_verdict(process, "hung")))

    wanted = "\N{MULTIPLICATION SIGN} hung \N{EN DASH} train.py, pid "
    assert browser.title.startswith(wanted)


def test_the_first_visit_has_one_line_to_type(browser, show):
    show(snapshot(1))

    assert text(browser, "#nothing pre").startswith("python -c ")
    assert visible(browser, "#nothing")
    assert not browser.find_elements(By.CSS_SELECTOR, ".uplot")
    shown = browser.find_elements(By.CSS_SELECTOR, "main > *")
    assert [e.get_attribute("id") for e in shown if e.is_displayed()] == [
        "said",
        "nothing",
    ]


def test_a_lost_connection_greys_the_page_and_says_how_old_it_is(
    browser, feed, show, process
):
    show(snapshot(1, process))
    feed.stop()

    wait_for(browser, "document.body.dataset.feed === 'lost'")
    wait_for(browser, "/are [0-9]+ s old/.test(document.body.textContent)")
    assert "no connection: trying again" in text(browser, "#connection")
    assert browser.title.startswith("no connection")
    main = browser.find_element(By.TAG_NAME, "main")
    assert "grayscale(1)" in main.value_of_css_property("filter")
    assert violations(browser) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "--allow-host"),
        (401, "sign in: open the URL that npu-dispatch serve printed"),
        (403, "you may not read this"),
        (429, "too many requests"),
        (503, "too many pages"),
    ],
)
def test_a_refusal_is_no_lost_connection(browser, feed, show, process, status, words):
    show(snapshot(1, process))
    feed.refuse(status)

    wait_for(browser, f"document.body.textContent.includes({words!r})")
    assert "no connection" not in text(browser, "#connection")
    assert browser.execute_script("return document.body.dataset.feed") == "lost"


def test_the_age_rises_while_nobody_answers(browser, feed, show, process):
    show(snapshot(1, process))
    feed.refuse(0)
    assert feed.unanswered.wait(60)

    for seconds in (2, 4):
        wait_for(
            browser,
            f"(document.body.textContent.match(/are ([0-9]+) s old/)?.[1] ?? 0)"
            f" > {seconds}",
        )


def test_a_service_that_sends_nothing_new_is_not_live(browser, show, process):
    show(snapshot(1, process))

    # It is asked again, and answers what it has said before.
    connection = "document.querySelector('#connection').textContent"
    wait_for(browser, f"{connection}.startsWith('the service sends nothing')")
    browser.execute_script(LISTEN)
    wait_for(browser, "window.heard?.tick === 1")
    assert browser.execute_script("return document.body.dataset.feed") == "lost"
    show(snapshot(2, process))
    wait_for(browser, "document.body.dataset.feed === 'live'")


def test_a_connection_that_comes_back_is_live(browser, feed, show, process):
    show(snapshot(1, process))
    feed.refuse(503)
    wait_for(browser, "document.body.dataset.feed === 'lost'")

    feed.refuse(200)

    feed.send(snapshot(2, process))
    drawn(browser, 2)
    wait_for(browser, "document.body.dataset.feed === 'live'")


def test_without_the_chart_library_the_figures_stand_in_words(
    browser, feed, show, process
):
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*uPlot.iife*"]})
    try:
        show(snapshot(1, with_trend(process, waits={"item": 0.25})))
        wait_for(browser, "document.body.dataset.feed === 'live'")

        assert visible(browser, "#unplotted") and visible(browser, "#host-said")
        assert "item: 25 % now" in text(browser, "#host-said")
        assert violations(browser) == []
    finally:
        browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})


def test_a_clock_that_steps_back_an_hour_stops_nothing(browser, show, process):
    show(snapshot(1, process), snapshot(2, with_trend(process, depths={"0:0": 7})))
    stepped = [with_trend(process, depths={"0:0": depth}) for depth in (8, 9)]
    for tick, one in zip((3, 4), stepped, strict=True):
        later = snapshot(tick, one)
        later["time"] -= 3600
        show(later)

    assert legend(browser, "queue") == {"0:0": "9"}
    assert text(browser, "#queue-said").startswith("0:0: 9 now, 7 to ")


def test_a_wait_of_no_length_is_not_drawn_and_percents_end_at_100(
    browser, show, process
):
    half = {"busy": 0.5, "held": 0.0, "starved": 0.0}
    one = with_trend(process, waits={"item": 0.3}, device=half)
    show(*(snapshot(tick, one) for tick in range(1, 12)))

    assert list(legend(browser, "host")) == ["item"]
    colours = browser.execute_script(
        """const canvas = document.querySelector("#device canvas");
        const over = document.querySelector("#device .u-over");
        const frame = canvas.getBoundingClientRect();
        const box = over.getBoundingClientRect();
        const paper = canvas.getContext("2d");
        return [0.4, 0.6].map((down) => paper.getImageData(
          box.left - frame.left + 0.715 * box.width,
          box.top - frame.top + down * box.height, 1, 1).data[3])"""
    )
    assert colours[0] == 0 and colours[1] > 100  # busy for half of 100 %


def test_ten_minutes_are_kept_and_one_is_shown_until_somebody_asks(
    browser, feed, show, process
):
    past = []
    for tick in range(500):
        depth = 700 if tick == 20 else 3
        one = with_trend(process, depths={"0:0": depth})
        kept = {name: one[name] for name in ("id", "pid", "trend")}
        past.append({"time": 0.0, "tick": tick, "processes": [kept]})
    feed.send(past, "history")
    show(snapshot(500, with_trend(process, depths={"0:0": 3})))
    minute = text(browser, "#queue-said")

    browser.find_element(By.CSS_SELECTOR, "[data-span='600']").click()

    assert minute == "0:0: 3 now, 3 to 3."
    said = "document.querySelector('#queue-said').textContent"
    assert wait_for(browser, f"{said} === '0:0: 3 now, 3 to 700.'")


def test_a_pause_keeps_the_page_as_it_is(browser, feed, show, process):
    show(snapshot(1, process))
    pause = browser.find_element(By.ID, "pause")
    pause.send_keys(Keys.ENTER)
    browser.execute_script(LISTEN)
    feed.send(snapshot(2, with_verdict(process, "hung")))
    feed.send(snapshot(3, with_verdict(process, "hung")))
    wait_for(browser, "window.heard?.tick === 3")
    browser.execute_async_script(
        """const done = arguments[0];
        requestAnimationFrame(() => requestAnimationFrame(done));"""
    )
    assert text(browser, "#connection") == "paused"
    before = text(browser, "#headline .word")

    pause.send_keys(Keys.ENTER)

    drawn(browser, 3)
    assert (before, text(browser, "#headline .word")) == ("device-bound", "hung")


def test_the_keyboard_reaches_everything_and_moves_through_time(browser, show, process):
    first, second = two(process)
    for tick in range(1, 5):
        show(snapshot(tick, with_trend(first, depths={"0:0": 10 * tick}), second))
    reached = []
    for _ in range(30):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        at = browser.switch_to.active_element
        reached.append(at.get_attribute("id") or at.text)
        if at.get_attribute("id") == "queue":
            newest = legend(browser, "queue")
            ActionChains(browser).send_keys(Keys.ARROW_LEFT * 2).perform()
            moved = legend(browser, "queue")
            ActionChains(browser).send_keys(Keys.ESCAPE).perform()

    names = ("pause", "host", "queue", "device", "trace", "1 minute", "/metrics")
    assert set(names) <= set(reached)
    assert any("eval.py" in one for one in reached)
    assert list(newest.values()) == ["40"] and list(moved.values()) == ["30"]


def test_the_rank_that_the_others_wait_for_comes_first(browser, show, process):
    show(snapshot(1, *ranks(process, 8, slow=5)))

    assert "rank 5" in text(browser, "#who")
    assert "The other ranks wait for rank 5" in text(browser, "#headline .text")
    rows = browser.find_elements(By.CSS_SELECTOR, "#processes tbody tr")
    order = [row.find_element(By.TAG_NAME, "button").text for row in rows]
    assert [int(who.split("rank ")[1][0]) for who in order] == [5, 0, 1, 2, 3, 4, 6, 7]

    rows[1].find_element(By.TAG_NAME, "button").click()

    wait_for(browser, "document.querySelector('#who').textContent.includes('rank 0')")
    assert "The other ranks wait for rank 5" in text(browser, "#straggler")


def test_a_trace_that_cannot_be_had_is_told_in_words(browser, show):
    show(snapshot(1))

    browser.find_element(By.ID, "trace").click()

    said = "document.querySelector('#trace-said').textContent"
    assert wait_for(browser, f"{said} !== 'writing it' && {said}") == "no process"


def test_a_killed_process_comes_first_until_somebody_has_started_again(
    browser, show, process
):
    dead = {"pid": 77, "name": "train.py", "rank": "1", "job_id": "", "time": 1.7e9}
    dead |= {"tick": 10.0, "at": "/long/way/train.py:12 in step"}
    show(snapshot(11, process | {"began": 2.0}, killed=(dead,)))
    before = text(browser, "#headline .word"), text(browser, "#headline code")
    todo = text(browser, "#headline .action")

    browser.refresh()
    show(snapshot(12, process | {"began": 10.5}, killed=(dead,)))

    assert before == ("killed", "train.py:12 in step")
    assert "npu-dispatch postmortem 77" in todo
    assert text(browser, "#headline .word") == "device-bound"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_kind_has_a_colour_a_word_and_a_symbol(browser, show, process, scheme):
    set_scheme(browser, scheme)
    several = []
    for i, kind in enumerate(KINDS):
        one = with_verdict(process, kind, at="/a/b.py:3 in f", action="Do `this`.")
        several.append(one | {"id": str(i), "pid": 100 + i})
    dead = {"pid": 7, "name": "", "rank": "", "job_id": "", "time": 1.7e9, "tick": 1.0}
    show(snapshot(2, *several, killed=(dead | {"at": ""},)))
    browser.execute_script(
        "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    found = browser.execute_script(
        """return [...document.querySelectorAll("#processes tbody tr")].map((row) => [
          row.querySelector(".word").textContent,
          row.querySelector(".mark").textContent,
          getComputedStyle(row.querySelector(".mark")).backgroundColor])"""
    )

    assert {word for word, _, _ in found} == {*KINDS, "killed"}
    assert len({symbol for _, symbol, _ in found}) == 10
    # What stands still is red, whatever the reason.
    assert len({colour for _, _, colour in found}) == 8
    assert violations(browser) == []
    assert browser.execute_script("return document.getAnimations().length") == 0


@pytest.mark.parametrize("width", [360, 768, 1265, 2560])
def test_nothing_reaches_over_the_edge(browser, show, process, width):
    set_size(browser, width, 900)
    folder = "/a_folder_whose_name_is_long" * 3
    line = f"{folder}/a_module_with_a_very_long_name.py:1234 in a_function_of_it"
    several = [
        with_verdict(one, "blocked", at=line, text=f"blocked: most at {line}")
        | {"name": "a_script_with_a_very_long_name_of_its_own.py"}
        for one in ranks(process, 8, slow=5)
    ]
    several[0]["lines"] = [
        {"at": line, "reason": "item", "share": 0.5, "count": 12345, "seconds": 12345.6}
    ]
    show(snapshot(1, *several))
    browser.execute_script(
        "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    show(snapshot(2, *several))

    assert overflowing(browser) == []


def test_numbers_and_lines_are_as_people_read_them(browser, feed):
    browser.get(feed.url)
    found = browser.execute_async_script(
        """const done = arguments[0];
        import("/page/tables.js").then(({ bytes, count, duration, shortener }) => {
          const short = shortener(["/a/x/util.py:3 in f", "/a/y/util.py:3 in f",
            "/a/y/train.py:12 in step", "<string>:7 in <module>"]);
          done([duration(12345.6), duration(65), duration(0.0123), duration(3e-6),
            duration(90000), bytes(80 * 2 ** 30), bytes(1536), bytes(0), count(8192),
            count(12345678), short("/a/x/util.py:3 in f"), short("/a/y/util.py:3 in f"),
            short("/a/y/train.py:12 in step"), short("<string>:7 in <module>"),
            short("")]);
        })"""
    )

    assert found == [
        *("3 h 25 min", "1 min 5 s", "12.3 ms", "3 µs", "1 d 1 h"),
        *("80 GiB", "1.5 KiB", "0 B", "8,192", "12.3 M"),
        *("x/util.py:3 in f", "y/util.py:3 in f"),
        *("train.py:12 in step", "<string>:7 in <module>", ""),
    ]
