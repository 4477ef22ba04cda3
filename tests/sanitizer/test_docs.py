"""The examples of docs/sanitizer.md find what they say."""

import re
from pathlib import Path

import pytest
import torch
from sanitizer_off import sanitizer_off

from npu_dispatch.npu import _sanitizer
from npu_dispatch.sanitizer import KINDS
from npu_dispatch.testing import ScheduleError

pytestmark = pytest.mark.npu_races("half of the examples do")

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sanitizer.md"
# The code, what it finds, and the report that follows it.
EXAMPLES = re.findall(
    r"```python\n(# finds: (\S+)\n.*?)```(?:\n\n```text\n(.*?)```)?",
    DOCUMENT.read_text(),
    re.S,
)
KINDS_SHOWN = [finds for _, finds, report in EXAMPLES if report]


def found_by(code):
    """Run an example; its lines count from that with the finding on."""
    _sanitizer.clear_reports()
    _sanitizer.enable_npu_sanitizer("report")
    exec(compile(code, "example.py", "exec"), {"torch": torch})
    torch.npu.synchronize()
    return _sanitizer.reports()


def comparable(text):
    """Return the lines of a report that do not depend on what ran before."""
    text = re.sub(r"task \d+", "task N", text)
    text = re.sub(r"(stream |stream_id=)[1-9]\d*", r"\1N", text)
    # Lines of pytest and of this file are the caller's.
    return [
        line
        for line in text.splitlines()
        if not re.match(r" +\S+:\d+ in ", line) or line.strip().startswith("example.py")
    ]


@pytest.fixture
def sanitizer():
    with sanitizer_off():
        yield


@pytest.mark.parametrize(("code", "finds", "shown"), EXAMPLES)
def test_an_example_finds_what_it_says(sanitizer, code, finds, shown):
    if finds == "ScheduleError":
        with pytest.raises(ScheduleError):
            exec(code, {"torch": torch})
        return
    reports = found_by(code)

    assert [r.kind for r in reports] == ([] if finds == "nothing" else [finds])
    if shown:
        assert comparable(reports[0].text()) == comparable(shown)


def test_every_kind_has_its_report_and_each_is_followed_by_a_fix():
    finds = [finds for _, finds, _ in EXAMPLES]

    assert set(KINDS_SHOWN) == set(KINDS)
    for number, kind in enumerate(finds):
        if kind in KINDS:
            assert "nothing" in finds[number : number + 3]
