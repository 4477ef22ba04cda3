"""A launch for which the host's memory does not suffice."""

from __future__ import annotations

import pytest

from tests.torture.faults import build

# Each launch is from a line that nobody has launched from: its stack is new, and
# to remember it takes memory.
LAUNCH = """
import ctypes, torch
calls = ctypes.CDLL(None)
x = torch.ones(3, device="npu")
def launch_from(line):
    exec(compile("\\n" * line + "global y; y = x + 1", "lines.py", "exec"), globals())
launch_from(0)
torch.npu.synchronize()
failed = 0
for line in range(1, 40):
    assert calls.fault_arm(0, ctypes.c_long(1 + line % 8))  # operator new
    launch_from(line)
    calls.fault_disarm()
    failed += calls.fault_failed()
assert y.sum().item() == 6
print(failed)
"""


@pytest.fixture(scope="module")
def failing_calls(tmp_path_factory) -> str:
    return str(build(tmp_path_factory.mktemp("failing_calls")))


def test_a_line_that_cannot_be_remembered_launches_all_the_same(
    failing_calls: str, fresh_python
):
    failed = fresh_python(LAUNCH, LD_PRELOAD=failing_calls).stdout

    assert int(failed) > 10
