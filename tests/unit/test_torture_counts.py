"""tests/torture/faults.py: what the campaign counts as a fault that was injected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.torture.faults import count


@pytest.fixture
def told() -> dict[str, Any]:
    sums = dict.fromkeys(("cases", "injected", "raised", "right", "hangs"), 0)
    return {**sums, "by_kind": {}}


def test_a_case_in_which_no_call_failed_is_no_fault(told):
    count(told, "new", {"failed": 0, "right": True})
    count(told, "new", {"failed": 1, "right": True})
    count(told, "mmap", {"failed": 1, "raised": "MemoryError"})

    assert (told["cases"], told["injected"]) == (3, 2)
    assert (told["right"], told["raised"]) == (1, 1)
    assert told["by_kind"] == {"new": 1, "mmap": 1}


def test_a_child_that_hung_is_a_hang_and_has_not_said_whether_a_call_failed(told):
    count(told, "new", {"hang": True, "bad": "hangs"})

    assert (told["hangs"], told["cases"], told["injected"]) == (1, 1, 0)


def test_a_fault_with_a_wrong_outcome_is_counted_as_neither_right_nor_raised(told):
    count(told, "new", {"failed": 1, "raised": "OSError", "bad": "at no line"})

    assert told["injected"] == 1
    assert told["right"] == told["raised"] == 0
