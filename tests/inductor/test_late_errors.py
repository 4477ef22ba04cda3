"""What only the kernel can know fails on the device, as one thread would."""

from pathlib import Path

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from npu_dispatch.inductor.entry import with_entry
from npu_dispatch.inductor.runtime import npu_kernel

SIZES = [8, 100_000]  # one thread; as many as large kernels have


@pytest.fixture(autouse=True)
def no_error_left():
    yield
    torch.npu.clear_error()


@pytest.mark.parametrize("size", SIZES)
def test_an_index_out_of_range_names_the_users_line(size):
    function = torch.compile(lambda x, i: x[i] * 2)
    x, i = torch.ones(size).npu(), torch.zeros(size, dtype=torch.long).npu()
    assert function(x, i).sum().item() == 2 * size
    i[-1] = size

    function(x, i)
    with pytest.raises(torch.npu.DeviceError) as caught:
        torch.npu.synchronize()

    text = str(caught.value)
    assert "npu_fused_index_mul_0 failed" in text
    assert "index out of bounds" in text
    assert Path(__file__).name in text


def trunc(a, b):
    return torch.div(a, b, rounding_mode="trunc")


DIVIDE = [torch.floor_divide, torch.remainder, torch.fmod, trunc]


@pytest.mark.parametrize("divide", DIVIDE, ids=lambda f: f.__name__)
def test_a_zero_divisor_is_an_error_as_on_cpu(divide):
    function = torch.compile(lambda a, b: divide(a, b), dynamic=True)
    for size in SIZES:
        a = torch.randint(-100, 100, (size,))
        b = torch.randint(1, 10, (size,)) * (a % 2 * 2 - 1)
        assert torch.equal(function(a.npu(), b.npu()).cpu(), divide(a, b))
        b[size // 2] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(a, b)
        function(a.npu(), b.npu())
        with pytest.raises(torch.npu.DeviceError, match="ZeroDivisionError"):
            torch.npu.synchronize()
        torch.npu.clear_error()


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


def run(kernel, **failing):
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
    table, x = torch.rand(500, 64).npu(), torch.randint(500, (5000,)).npu()

    def normed(x, table):
        return torch.layer_norm(table[x], (64,))

    result, (code,) = run_and_get_code(torch.compile(normed), x, table)
    assert "TORCH_CHECK" in code
    compiled = with_entry(code[code.index("#include") :])
    assert compiled.count("#pragma omp for") == code.count("#pragma omp for") > 0
    torch.testing.assert_close(result, normed(x, table))
