"""What the live page's charts show of values that are known, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import set_size, wait_for
from page_feed import PageFeed, snapshot
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.nightly

START = 1_700_000_000
TIMES = [START + i for i in range(101)]
RISING = list(range(101))
FALLING = list(range(100, -1, -1))
LINES = [{"name": "rising", "values": RISING}, {"name": "falling", "values": FALLING}]


@pytest.fixture(scope="module")
def browser(chromium, tmp_path_factory) -> Iterator[Any]:
    """It shows the page of a machine where nobody uses the device."""
    set_size(chromium, 1300, 900)
    with PageFeed(tmp_path_factory.mktemp("none")) as feed:
        chromium.get(feed.url)
        feed.send(snapshot(1))
        wait_for(chromium, "document.body.dataset.drawn")
        # What a test draws there stays, although there is nothing to draw.
        chromium.execute_script(
            """document.querySelector("#pause").click();
            document.querySelector("#evidence").hidden = false;
            document.querySelectorAll("details").forEach((one) => { one.open = true; })
            """
        )
        yield chromium
        assert chromium.get_log("browser") == []  # nothing was refused


@pytest.fixture
def draw(browser) -> Callable[..., None]:
    """draw("charts.js", "drawOverTime(...)") calls a function of the page's own."""

    def call(module: str, expression: str) -> None:
        failure = browser.execute_async_script(
            f"""const done = arguments[0];
            import("/page/{module}").then((page) => {{ page.{expression}; }})
              .then(() => requestAnimationFrame(() => done(null)),
                    (error) => done(String(error)));"""
        )
        assert failure is None

    call("charts.js", "setSpan(100)")
    return call


def draw_lines(draw, id_: str, **options: Any) -> None:
    series, times = json.dumps(LINES), json.dumps(TIMES)
    settings = f"""{{ ...{json.dumps(options)}, range: () => [0, 200],
      format: (value) => `${{value}} tasks` }}"""
    draw("charts.js", f'drawOverTime("{id_}", {times}, {series}, {settings})')


def legend(browser, id_: str) -> dict[str, str]:
    entries = browser.find_elements(By.CSS_SELECTOR, f"#{id_} .u-series")
    return {
        entry.find_element(By.CLASS_NAME, "u-label").text.rstrip(
            ":"
        ): entry.find_element(By.CLASS_NAME, "u-value").text
        for entry in entries
    }


def point(browser, id_: str, across: float, down: float = 0.5) -> ActionChains:
    """Move the mouse to a place of a chart, in parts of its width and height."""
    over = browser.find_element(By.CSS_SELECTOR, f"#{id_} .u-over")
    size = over.size
    x, y = (across - 0.5) * size["width"], (down - 0.5) * size["height"]
    chain = ActionChains(browser).move_to_element_with_offset(over, round(x), round(y))
    chain.perform()
    return chain


def away(browser) -> None:
    ActionChains(browser).move_to_element(
        browser.find_element(By.TAG_NAME, "h1")
    ).perform()


def test_a_legend_has_the_newest_values_and_those_under_the_mouse(browser, draw):
    draw_lines(draw, "device")
    away(browser)
    newest = legend(browser, "device")

    point(browser, "device", 0.25)
    pointed = legend(browser, "device")

    assert newest["rising"] == "100 tasks" and newest["falling"] == "0 tasks"
    assert pointed["rising"] == "25 tasks" and pointed["falling"] == "75 tasks"
    assert list(pointed) == ["time", "rising", "falling"]


def test_all_charts_show_the_moment_that_one_is_pointed_at(browser, draw):
    draw_lines(draw, "device")
    draw_lines(draw, "memory")

    point(browser, "device", 0.4)

    assert legend(browser, "memory")["rising"] == "40 tasks"
    assert legend(browser, "memory")["time"] == legend(browser, "device")["time"]


def test_areas_are_drawn_on_top_of_each_other_and_named_by_their_own(browser, draw):
    draw_lines(draw, "host", stacked=True)

    point(browser, "host", 0.3)

    assert legend(browser, "host")["falling"] == "70 tasks"
    # The sum is 100 of 200 everywhere: grounds of two colours below it, none above.
    colours = browser.execute_script(
        """const canvas = document.querySelector("#host canvas");
        const over = document.querySelector("#host .u-over");
        const frame = canvas.getBoundingClientRect();
        const box = over.getBoundingClientRect();
        const paper = canvas.getContext("2d");
        const { data } = paper.getImageData(0, 0, canvas.width, canvas.height);
        const at = (across, down) => {
          const x = Math.round(box.left - frame.left + across * box.width);
          const y = Math.round(box.top - frame.top + down * box.height);
          const first = 4 * (y * canvas.width + x);
          return data.slice(first, first + 4).join();
        };
        return [at(0.315, 0.55), at(0.315, 0.95), at(0.315, 0.45)]"""
    )
    assert len(set(colours)) == 3 and colours[2] == "0,0,0,0"


def test_a_span_is_shown_alone_until_a_double_click(browser, draw):
    draw_lines(draw, "device")
    draw_lines(draw, "memory")
    over = browser.find_element(By.CSS_SELECTOR, "#device .u-over")
    point(browser, "device", 0.2).click_and_hold().move_by_offset(
        round(0.2 * over.size["width"]), 0
    ).release().perform()

    draw_lines(draw, "device")  # a newer reading does not end it
    draw_lines(draw, "memory")
    point(browser, "device", 0.5)
    narrow = [legend(browser, id_)["rising"] for id_ in ("device", "memory")]
    ActionChains(browser).double_click(over).perform()
    draw_lines(draw, "device")
    point(browser, "device", 0.75)
    wide = legend(browser, "device")["rising"]

    assert narrow == ["30 tasks", "30 tasks"]
    assert wide == "75 tasks"


def test_the_heat_names_the_times_under_the_mouse_and_counts_them(browser, draw):
    column = [0] * 22
    column[5], column[6] = 7, 3  # 16 to 32 µs, 32 to 64 µs
    columns = json.dumps([column] * len(TIMES))
    draw("charts.js", f'drawHeat("heat", {json.dumps(TIMES)}, {columns})')
    away(browser)
    all_of_them = legend(browser, "heat")["tasks"]

    # Rows 4 to 8 are shown: 5 is the second from below.
    point(browser, "heat", 0.5, down=1 - 1.5 / 4)
    row = legend(browser, "heat")["tasks"]

    assert all_of_them == "10"
    assert row == "7 of 10 in 16 µs to 32 µs"


def test_a_bar_is_as_wide_as_its_share(browser, draw):
    shares = json.dumps({"busy": 0.25, "starved": 0.5, "held": 0.0})
    cell = 'document.querySelector("#straggler")'
    draw("tables.js", f"setBar({cell}, {shares})")
    bar = browser.find_element(By.CSS_SELECTOR, "#straggler .bar")
    widths, whole, note = browser.execute_script(
        """const [bar, note] = document.querySelector("#straggler").children;
        document.querySelector("#side").hidden = false;
        return [[...bar.children].map((part) => part.getBoundingClientRect().width),
          bar.getBoundingClientRect().width, note.textContent]"""
    )

    wanted = [0.25 * whole, 0.5 * whole, 0, 0.25 * whole]
    assert whole > 50 and widths == pytest.approx(wanted, abs=1)
    assert bar.get_attribute("title") == "busy 25 %, starved 50 %, held 0 %, idle 25 %"
    assert note == "50 % starved"
