"""A headless Chromium, from the system's packages."""

from __future__ import annotations

from missing import need_tool
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service


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
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        },
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    return browser
