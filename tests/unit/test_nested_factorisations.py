"""Batches of matrices are factorised by MKL within torch's own parallel loop.

On cpu that computes wrong numbers, or never ends, after torch.set_num_threads(): MKL
then counts on threads which a member of an OpenMP team does not have.
"""

import pytest

PROGRAM = """
import numpy, torch

torch.set_num_threads(2)
matrices = torch.rand(16, 200, 200, generator=torch.Generator().manual_seed(0))
matrices += 10 * torch.eye(200)
expected = numpy.linalg.inv(matrices.numpy())
x = matrices.npu()
# OpenMP's other threads have run kernels, and got torch's number.
(x @ x).softmax(-1).sum().item()
right = []

def check(inverses):
    right.append(numpy.allclose(inverses.cpu().numpy(), expected, atol=1e-5))
"""
QUEUED = """
for _ in range(3):  # the first call of a kind may run on its caller
    check(torch.linalg.inv(x))
"""
OTHER_STREAM = """
with torch.npu.stream(torch.npu.Stream()):
    for _ in range(3):
        check(torch.linalg.solve(x, torch.eye(200, device="npu").expand_as(x)))
"""
BLOCKING = """
with torch.npu.launch_blocking():
    check(torch.linalg.inv(x))
with torch.npu.stream(torch.npu.SyncLaunchStream()):
    check(torch.linalg.inv(x))
"""
REPLAYED = """
torch.linalg.inv_ex(x)
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    inverses, _ = torch.linalg.inv_ex(x)
for _ in range(3):
    graph.replay()
    check(inverses)
"""


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(QUEUED, id="queued"),
        pytest.param(OTHER_STREAM, id="other-stream"),
        pytest.param(BLOCKING, id="blocking"),
        pytest.param(REPLAYED, id="replayed"),
    ],
)
@pytest.mark.parametrize("told", ["torch.set_num_threads(2)", ""], ids=["told", "free"])
def test_inverses_are_those_of_numpy(python, calls, told):
    program = PROGRAM.replace("torch.set_num_threads(2)", told)
    assert python(program + calls + "print(set(right))").stdout == "{True}\n"


def test_a_custom_kernel_that_factorises_is_as_on_cpu(python):
    calls = """
stream = torch.npu.Stream()
stream.submit(lambda: check(torch.linalg.inv(matrices)))
stream.synchronize()
print(right)
"""
    program = PROGRAM.replace("torch.set_num_threads(2)", "")
    assert python(program + calls).stdout == "[True]\n"
