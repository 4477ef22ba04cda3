"""Parallel loops that check what they read fail as one thread would."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from npu_dispatch.inductor.entry import with_entry
from npu_dispatch.inductor.runtime import npu_kernel

N = 1000
LOOP = """
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<1000L; x0+=1L)
            {
                {
                    TORCH_CHECK(in_ptr0[x0] != %d, "%s loop at ", x0);
                    out_ptr0[x0] += 1;
                }
            }
"""
KERNEL = f"""
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const int64_t* in_ptr0,
                       int64_t* out_ptr0)
{{
    #pragma omp parallel num_threads(4)
    {{
        int tid = omp_get_thread_num();
        {{{LOOP % (1, "first")}        }}
        {{{LOOP % (2, "second")}        }}
    }}
}}
"""


@pytest.fixture(scope="module")
def kernel():
    whole = ((N,), (1,))
    made = npu_kernel("checked", 0, [("r", 8, whole), ("rw", 8, whole)], KERNEL)
    return made if callable(made) else made.result()


@pytest.fixture(autouse=True)
def no_error_left():
    yield
    torch.npu.clear_error()


def run(kernel, **failing: int) -> torch.Tensor:
    """Run the loops; `failing`: the index at which each loop fails."""
    values = torch.zeros(N, dtype=torch.long)
    for loop, code in (("second", 2), ("first", 1)):
        for i in failing.get(loop, ()):
            values[i] = code
    counted = torch.zeros(N, dtype=torch.long).npu()
    kernel(values.npu(), counted)
    torch.npu.synchronize()
    return counted.cpu()


def test_loops_that_do_not_fail_run_as_they_are(kernel):
    assert torch.equal(run(kernel), torch.full((N,), 2))


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ({"first": (900, 100)}, "first loop at 100"),
        ({"first": (999,), "second": (0,)}, "first loop at 999"),
        ({"second": (700, 300, 301)}, "second loop at 300"),
        ({"first": range(N)}, "first loop at 0"),
    ],
)
def test_the_error_is_the_first_of_a_single_thread(kernel, failing, said):
    for _ in range(20):
        with pytest.raises(torch.npu.DeviceError, match=rf"{said}\b"):
            run(kernel, **failing)
        torch.npu.clear_error()


def test_an_embedding_and_its_norm_keep_their_threads():
    table, x = torch.rand(500, 64).npu(), torch.randint(500, (2000,)).npu()

    def normed(x, table):
        return torch.layer_norm(table[x], (64,))

    result, (code,) = run_and_get_code(torch.compile(normed), x, table)
    assert "TORCH_CHECK" in code
    compiled = with_entry(code[code.index("#include") :])
    assert compiled.count("#pragma omp for") == code.count("#pragma omp for") > 0
    torch.testing.assert_close(result, normed(x, table))
