"""A headless Chromium, from the system's packages."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from missing import need_module, need_tool
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parents[2]


def open_browser(width: int, height: int, *, dark: bool) -> webdriver.Chrome:
    """Start one; a machine without it skips the test and says what to install."""
    remedy = "apt-get install --no-install-recommends chromium chromium-driver"
    chromium = need_tool("chromium", "chromium-browser", remedy=remedy)
    driver = need_tool("chromedriver", remedy=remedy)
    options = Options()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(flag)
    options.add_argument("--disable-dev-shm-usage")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, Service(driver))
    set_size(browser, width, height)
    # A picture of the whole page has no bar to scroll, so no place is kept for one.
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    set_scheme(browser, "dark" if dark else "light")
    return browser


def set_size(browser: webdriver.Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {**size, "mobile": width < 600}
    )


def set_scheme(browser: webdriver.Chrome, name: str) -> None:
    scheme = {"name": "prefers-color-scheme", "value": name}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def wait_for(browser: webdriver.Chrome, script: str) -> Any:
    """Ask until an expression of JavaScript is true, and return its value."""
    ask: Callable[[webdriver.Chrome], Any] = lambda b: b.execute_script(  # noqa: E731
        f"return {script}"
    )
    return WebDriverWait(browser, 60, 0.05).until(ask)


def save_picture(browser: webdriver.Chrome, name: str) -> None:
    """Leave the whole page as out/page/NAME.png, for people to look at."""
    picture = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"}
    )
    file = ROOT / "out" / "page" / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(base64.b64decode(picture["data"]))


def violations(browser: webdriver.Chrome) -> list[str]:
    """Return what axe-core finds that is serious or critical."""
    package = need_module("axe_core_python")
    assert package.__file__
    browser.execute_script((Path(package.__file__).parent / "axe.min.js").read_text())
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(done)"
    )
    return [
        f"{one['id']}: {node['html']}"
        for one in found["violations"]
        for node in one["nodes"]
        if one["impact"] in ("serious", "critical")
    ]


def overflowing(browser: webdriver.Chrome) -> list[str]:
    """Return the elements that reach over the right edge of the page."""
    found: list[str] = browser.execute_script(
        """const width = document.documentElement.clientWidth;
        const over = [...document.querySelectorAll("body *")].filter((one) =>
          one.getBoundingClientRect().right > width + 1);
        return [document.documentElement.scrollWidth > width ? ["the page"] : [],
          over.map((one) => one.outerHTML.slice(0, 120))].flat()"""
    )
    return found
