"""npu_dispatch/op_tiers.txt, which `npu-dispatch ops` prints, says what is so."""

from __future__ import annotations

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
        [sys.executable, ROOT / "csrc/ops/codegen/tiers.py", "--check"],
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
    done = python(
        "from npu_dispatch.cli import main; import sys; main(sys.argv[1:])",
        "ops",
        "nonzero",
        "--tier",
        "synchronous",
    )

    assert done.stdout.split() == [
        *("synchronous", "aten::nonzero"),
        *("synchronous", "aten::nonzero.out"),
    ]
