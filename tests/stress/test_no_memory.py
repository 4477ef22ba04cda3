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
failed = raised = 0
for line in range(1, 40):
    assert calls.fault_arm(0, ctypes.c_long(1 + line % 8))  # operator new
    try:
        launch_from(line)
    except torch.OutOfMemoryError as error:
        assert "aten::add" in str(error) and "out of host memory" in str(error), error
        raised += 1
    calls.fault_disarm()
    failed += calls.fault_failed()
launch_from(100)
assert y.sum().item() == 6
print(failed, raised)
"""


@pytest.fixture(scope="module")
def failing_calls(tmp_path_factory) -> str:
    return str(build(tmp_path_factory.mktemp("failing_calls")))


# It held the interpreter's lock for ever.
def test_a_launch_without_memory_raises_and_the_next_one_runs(
    failing_calls: str, fresh_python
):
    failed, raised = fresh_python(LAUNCH, LD_PRELOAD=failing_calls).stdout.split()

    assert int(failed) > 10 and int(raised) <= int(failed)
