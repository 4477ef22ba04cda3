"""Drivers from outside of the tree: the example in C, and libraries that are none."""

from pathlib import Path

import pytest
from c_library import compiled

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    example = ROOT / "examples/driver/toy_driver.c"
    source = tmp_path_factory.mktemp("toy") / example.name
    source.write_bytes(example.read_bytes())
    return str(compiled(source, "-std=c11", "-Wextra"))


def test_the_example_in_c_trains_a_model(python, toy):
    """Losses of a loop with two streams and a captured step equal cpu's."""
    code = """
import copy, torch
from torch import nn
torch.manual_seed(0)
on_cpu = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
on_npu = copy.deepcopy(on_cpu).npu()
x, y = torch.randn(64, 16), torch.randn(64, 4)

def losses(model, x, y, steps):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).cpu()

side = torch.npu.Stream()
with torch.npu.stream(side):
    x_npu, y_npu = x.npu(non_blocking=True), y.npu(non_blocking=True)
torch.npu.current_stream().wait_stream(side)
torch.testing.assert_close(losses(on_npu, x_npu, y_npu, 20), losses(on_cpu, x, y, 20))

graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    z = on_npu(x_npu).relu().sum(0)
for _ in range(3):
    graph.replay()
torch.testing.assert_close(z.cpu(), on_cpu(x).relu().sum(0).detach())
start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
start.record(); on_npu(x_npu); end.record(); end.synchronize()
assert start.elapsed_time(end) > 0
"""
    python(code, NPU_DRIVER=toy)


def test_an_error_reported_late_names_the_line_and_the_next_work_runs(python, toy):
    code = """
import torch
x = torch.arange(8, device="npu")
bad = torch.tensor([99], device="npu")
torch.npu.synchronize()
try:
    y = x[bad]
    z = x + 1  # behind it: in flight, refused, or dropped
    torch.npu.synchronize()
except IndexError as error:
    assert "index 99 is out of bounds" in str(error), error
    assert "launched at <string>:7" in str(error), error
else:
    raise SystemExit("no error")
torch.npu.clear_error()
assert torch.equal((torch.arange(8, device="npu") + 1).cpu(), torch.arange(8) + 1)
"""
    python(code, NPU_DRIVER=toy)


TABLE = """#include "npu_driver.h"
const npu_driver *npu_driver_table(void) {
  static const npu_driver t = {sizeof(npu_driver), %s};
  return &t;
}
"""


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("int nothing;", "exports no function npu_driver_table()"),
        (TABLE % 'NPU_DRIVER_ABI, .name = "half"', "its table lacks device_count"),
        (TABLE % "1", "was built for version 1 of"),
    ],
)
def test_a_library_that_is_no_driver_is_refused(python, tmp_path, source, says):
    """import torch works; the first use says what is wrong; none is available."""
    (tmp_path / "bad.c").write_text(source)
    code = """
import sys, warnings, torch
warnings.simplefilter("ignore")
assert torch.ones(2).sum() == 2 and not torch.npu.is_available()
try:
    torch.ones(2, device="npu")
except RuntimeError as error:
    assert sys.argv[1] in str(error), error
else:
    raise SystemExit("no error")
"""
    python(code, says, NPU_DRIVER=str(compiled(tmp_path / "bad.c")))
