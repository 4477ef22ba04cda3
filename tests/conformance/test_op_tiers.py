"""Which operators wait for the device: those that npu_dispatch/op_tiers.txt says.

`npu-dispatch ops` prints it. None waits at its first call and not at later ones.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from host_waits import host_waits
from versioned import of_the_pages

ROOT = Path(__file__).resolve().parents[2]
TABLE = dict(
    reversed(line.split())
    for line in (ROOT / "npu_dispatch" / "op_tiers.txt").read_text().splitlines()
)


@of_the_pages
def test_the_table_is_what_the_generator_writes():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/op_tiers.py", "--check"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_only_operators_whose_results_depend_on_data_wait():
    waits = {
        op.partition(".")[0] for op, tier in TABLE.items() if tier == "synchronous"
    }

    assert waits == {
        f"aten::{name}"
        for name in [
            # shapes
            "masked_select", "nonzero", "repeat_interleave", "bincount",
            "_unique", "_unique2", "unique_dim", "unique_consecutive",
            "unique_dim_consecutive", "_ctc_loss",
            # values
            "_local_scalar_dense", "equal", "_nested_tensor_from_mask_left_aligned",
            # values that the kernel refuses
            "_linalg_eigh", "_linalg_eigvals", "_linalg_svd", "cholesky",
            "linalg_eig", "linalg_eigvals",
            # torch's kernel reads or writes memory on the calling thread
            "_grid_sampler_2d_cpu_fallback", "_grid_sampler_2d_cpu_fallback_backward",
            "_nnpack_spatial_convolution", "_reshape_from_tensor", "_rowwise_prune",
            "_saturate_weight_to_fp16", "_sobol_engine_draw", "_sobol_engine_ff_",
            "_sobol_engine_initialize_state_", "_sobol_engine_scramble_",
            "choose_qparams_optimized", "fbgemm_linear_quantize_weight", "range",
            # no shape function; linalg_lstsq itself has one
            "linalg_lstsq",
            # of sparse tensors only
            "_coalesce", "_sparse_broadcast_to", "_sparse_csr_prod", "_sparse_csr_sum",
            "_sparse_log_softmax", "_sparse_log_softmax_backward_data",
            "_sparse_mask_projection", "_sparse_mm_reduce_impl",
            "_sparse_mm_reduce_impl_backward", "_sparse_softmax",
            "_sparse_softmax_backward_data", "_sparse_sparse_matmul",
            "_sparse_sum_backward", "_to_dense", "hspmm", "native_norm",
            "sparse_mask", "sparse_sampled_addmm",
            # of strided nested tensors only
            "_nested_from_padded_and_nested_example", "_nested_select_backward",
            "_nested_sum_backward", "_nested_tensor_softmax_with_shape",
            "linear_backward", "matmul_backward", "to_padded_tensor",
        ]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "call", "waits"),
    [
        ("aten::add.Tensor", lambda x: x + x, False),
        ("aten::sort", lambda x: x.sort(), False),
        ("aten::_foreach_add.Scalar", lambda x: torch._foreach_add([x, x], 1), False),
        ("aten::histc", lambda x: torch.histc(x, 4), False),
        ("aten::nonzero", lambda x: x.nonzero(), True),
        ("aten::equal", lambda x: torch.equal(x, x + 1), True),
        ("aten::_unique2", lambda x: torch.unique(x), True),
        ("aten::view", lambda x: x.view(4, 1), False),
    ],
)
def test_the_tier_is_what_a_call_does(operator, call, waits):
    x = torch.ones(4).npu()
    call(x)  # the first call of its kind may try the kernel

    waited = host_waits(lambda: call(x))

    assert (TABLE[operator] == "synchronous") == waits
    assert bool(waited) == waits


def test_the_command_prints_it(python):
    code = "from npu_dispatch.cli import main; import sys; main(sys.argv[1:])"
    done = python(code, "ops", "nonzero", "--tier", "synchronous")

    assert done.stdout.split() == [
        *("synchronous", "aten::nonzero"),
        *("synchronous", "aten::nonzero.out"),
    ]


# Kernels refuse the zeros and ones on which a call is tried, or have no meta kernel.
CALLS = """
import warnings
import npu_dispatch, torch
warnings.simplefilter("ignore")
torch.manual_seed(0)
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


def test_first_calls_that_accept_some_values_only_do_not_wait(python):
    python(CALLS)


WHOLE_DATABASE = """
import itertools, sys
import npu_dispatch, torch
sys.path.append(sys.argv[1])
from host_waits import host_waits
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

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
            first = set(host_waits(call))
            if first and (only := first - set(host_waits(call))):
                found[op.formatted_name] = only
        except Exception:
            continue
print(found)
"""


@pytest.mark.nightly
def test_no_first_call_of_the_database_waits_where_a_later_one_does_not(python):
    assert (
        python(WHOLE_DATABASE, str(ROOT / "tests/support")).stdout.splitlines()[-1]
        == "{}"
    )
