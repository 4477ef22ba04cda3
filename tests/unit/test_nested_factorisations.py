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
OTHERS = """
lu, pivots = torch.linalg.lu_factor(x)
check(torch.linalg.lu_solve(lu, pivots, torch.eye(200, device="npu").expand_as(x)))
signs, logs = torch.linalg.slogdet(x)
expected_logs = numpy.linalg.slogdet(matrices.numpy())[1]
right.append(numpy.allclose(logs.cpu().numpy(), expected_logs, atol=1e-3))
P, L, U = torch.linalg.lu(x)
right.append(torch.allclose((P @ L @ U).cpu(), matrices, atol=1e-4))
scaled = matrices.numpy() / 15
right.append(numpy.allclose(torch.linalg.det(x / 15).cpu().numpy(),
                            numpy.linalg.det(scaled), rtol=1e-3))
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
        pytest.param(OTHERS, id="others"),
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


def test_a_norm_is_summed_in_as_many_parts_as_on_cpu(python):
    program = """
import torch
torch.set_num_threads(2)
x = torch.rand(8, 300, 300, generator=torch.Generator().manual_seed(0))
expected = torch.linalg.vector_norm(x)
print({torch.equal(torch.linalg.vector_norm(x.npu()).cpu(), expected) for _ in "123"})
"""
    assert python(program).stdout == "{True}\n"
