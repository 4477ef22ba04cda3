"""No operator waits for the device at its first call and not at later ones."""

from __future__ import annotations

import pytest

# Kernels refuse the zeros and ones on which a call is tried, or have no meta kernel.
CALLS = """
import warnings
import npu_dispatch, torch
warnings.simplefilter("ignore")
x = torch.rand(10, 4).npu() + 0.1
repeats = torch.tensor([1, 2] * 5).npu()
many = torch.ones(100_000, dtype=torch.int64).npu()
lengths = torch.tensor([[3, 7], [4, 6]]).npu()
data = torch.ones(2, 10).npu()
torch.npu.synchronize()
torch.npu.set_sync_debug_mode("error")
a = x.repeat_interleave(repeats, dim=0, output_size=15)
b = torch.repeat_interleave(many, output_size=100_000)
c = torch.segment_reduce(data, "sum", lengths=lengths, axis=1)
d = torch.distributions.Dirichlet(x, validate_args=False).sample()
e = torch._dirichlet_grad(x, x, x)
f = torch.binomial((x * 9).round(), x / 2)
g = torch._standard_gamma_grad(x, x)
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    h = x[:5].repeat_interleave(repeats[:5], dim=0, output_size=7)
torch.npu.set_sync_debug_mode("default")
graph.replay()
assert torch.equal(a.cpu(), x.cpu().repeat_interleave(repeats.cpu(), dim=0))
assert torch.equal(b, torch.arange(100_000, device="npu"))
assert c.tolist() == [[3, 7], [4, 6]], c
torch.testing.assert_close(d.sum(1), torch.ones(10, device="npu"))
torch.testing.assert_close(e.cpu(), torch._dirichlet_grad(*[x.cpu()] * 3))
assert f.shape == x.shape and bool((f <= 9 * 1.1).all())
torch.testing.assert_close(g.cpu(), torch._standard_gamma_grad(x.cpu(), x.cpu()))
assert torch.equal(h.cpu(), a.cpu()[:7])
for wrong in (
    lambda: torch.repeat_interleave(lengths, output_size=20),
    lambda: torch.repeat_interleave(x[0], output_size=20),
    lambda: torch.segment_reduce(data, "sum", lengths=lengths, axis=0),
):
    try:
        wrong()
    except RuntimeError:
        continue
    raise AssertionError("not refused at the call")
"""


def test_where_only_some_values_are_accepted(python):
    python(CALLS)


WHOLE_DATABASE = """
import itertools, warnings
import npu_dispatch, torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

def waits(call):
    torch.npu.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.npu.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.npu.set_sync_debug_mode("default")
    return {str(w.message) for w in caught if w.category is torch.npu.HostSyncWarning}

def on_npu(value):
    if isinstance(value, torch.Tensor):
        return value.npu()
    return "npu" if value in ("cpu", torch.device("cpu")) else value

found = {}
DTYPES = (torch.float32, torch.int64, torch.complex64)
for op, dtype in itertools.product(op_db, DTYPES):
    if dtype not in op.supported_dtypes("cpu"):
        continue
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype), 12))
    except Exception:
        continue
    for s in samples:
        args, kwargs = pytree.tree_map(on_npu, ((s.input, *s.args), s.kwargs))
        call = lambda: op(*args, **kwargs)
        try:
            first = waits(call)
            if first and (only := first - waits(call)):
                found[op.formatted_name] = only
        except Exception:
            continue
print(found)
"""


@pytest.mark.nightly
def test_in_the_whole_database(python):
    assert python(WHOLE_DATABASE).stdout.splitlines()[-1] == "{}"
