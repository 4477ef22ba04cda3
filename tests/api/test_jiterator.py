"""torch.npu.jiterator, against the same formula written with torch operators."""

from __future__ import annotations

import pytest
import torch

jiterator = torch.npu.jiterator

AXPY = "template <typename T> T axpy(T x, T y, T alpha) { return x + alpha * y; }"
SUMS = """
template <typename T> T twice(T x) { return x + x; }
template <typename T> void sums(T x, T y, T& plus, T& minus) {
  plus = x + y;
  minus = twice(x) - y;
}
"""


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def axpy():
    return jiterator._create_jit_fn(AXPY, alpha=1.0)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.int32, torch.bfloat16, torch.complex64],
)
def test_it_computes_each_element(axpy, dtype):
    x, y = (torch.randn(3, 5).mul(10).to(dtype) for _ in range(2))

    z = axpy(x.npu(), y.npu(), alpha=2)

    assert z.dtype == dtype and z.is_npu
    torch.testing.assert_close(z.cpu(), x + 2 * y)


def test_defaults_and_overrides(axpy):
    x = torch.ones(4, device="npu")

    assert axpy(x, x).tolist() == [2] * 4
    assert axpy(x, x, alpha=-1.0).tolist() == [0] * 4
    with pytest.raises(KeyError, match="beta"):
        axpy(x, x, beta=1)
    with pytest.raises(TypeError, match="must be a number"):
        axpy(x, x, alpha="1")


def test_it_broadcasts_strided_operands(axpy):
    x = torch.randn(4, 6)[:, ::2].npu()
    y = torch.randn(3, 1).npu().t()

    torch.testing.assert_close(axpy(x, y).cpu(), x.cpu() + y.cpu())


@pytest.mark.parametrize("rank", [25, 26, 40, 60])
def test_any_rank_will_do(axpy, rank):
    shape = [1] * (rank - 3) + [2, 3, 4]
    x, y = torch.randn(shape).transpose(-1, -2), torch.randn([*shape[:-2], 4, 3])

    z = axpy(x.npu(), y.npu())

    torch.testing.assert_close(z.cpu(), x + y)


def test_it_promotes_types(axpy):
    whole = torch.arange(4, device="npu")
    half = torch.ones(4, dtype=torch.float16, device="npu")

    assert axpy(whole, half).dtype == (whole + half).dtype
    assert axpy(half, torch.tensor(2.0)).dtype == torch.float16
    assert axpy(whole, torch.tensor(2.5)).tolist() == [2.5, 3.5, 4.5, 5.5]


def test_an_empty_tensor_is_fine(axpy):
    x = torch.empty(0, 3, device="npu")

    assert axpy(x, x).shape == (0, 3)


def test_several_outputs():
    sums = jiterator._create_multi_output_jit_fn(SUMS, 2)
    x, y = torch.randn(2, 9).npu()

    plus, minus = sums(x, y)

    torch.testing.assert_close(plus, x + y)
    torch.testing.assert_close(minus, 2 * x - y)


def test_it_runs_in_its_streams_order(axpy):
    gate, stream = torch.npu.ExternalEvent(), torch.npu.Stream()
    x = torch.zeros(1000, device="npu")
    axpy(x, x)  # compiled
    stream.wait_stream(torch.npu.current_stream())
    gate.wait(stream)
    with torch.npu.stream(stream):
        x += 1
        y = axpy(x, x)
        assert not stream.query()
        x.zero_()
    gate.record()
    stream.synchronize()

    assert y.tolist() == [2] * 1000


def test_wrong_use_is_refused(axpy):
    x = torch.ones(1, device="npu")
    with pytest.raises(AssertionError, match="8"):
        axpy(*[x] * 9)
    with pytest.raises(RuntimeError, match="parse"):
        jiterator._create_jit_fn("T f(T x) { return x; }")
    with pytest.raises(AssertionError, match="8"):
        jiterator._create_multi_output_jit_fn(SUMS, 9)
    with pytest.raises(RuntimeError, match="npu tensor"):
        axpy(torch.ones(1), torch.ones(1))


def test_what_does_not_compile_says_why():
    wrong = jiterator._create_jit_fn("template <typename T> T f(T x) { return y; }")

    with pytest.raises(RuntimeError, match=r"y.* was not declared|undeclared"):
        wrong(torch.ones(1, device="npu"))


USE = f"""
import sys
import npu_dispatch, torch
f = torch.npu.jiterator._create_jit_fn({AXPY!r}, alpha=1.0)
try:
    print(f(torch.ones(1).npu(), torch.ones(1).npu()).item())
except RuntimeError as error:
    print(error)
"""


def test_the_compiled_function_is_kept_on_disk(python, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\necho ran >> $0.log\nexec c++ "$@"\n')
    compiler.chmod(0o755)

    for _ in range(2):
        assert python(USE, CXX=str(compiler), **env).stdout.strip() == "2.0"

    assert (tmp_path / "compiler.log").read_text() == "ran\n"
    assert len(list((tmp_path / "npu_dispatch" / "jiterator").glob("*.so"))) == 1


def test_the_folder_of_compiled_functions_is_its_users_alone(python, tmp_path):
    assert python(USE, XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "2.0"

    folder = tmp_path / "npu_dispatch" / "jiterator"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_code_is_loaded_from_a_folder_that_others_may_change(python, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)

    said = python(USE, XDG_CACHE_HOME=str(shared)).stdout

    assert f"every user may change {shared}; set XDG_CACHE_HOME" in said
    assert not list(shared.rglob("*.so"))


def test_without_a_compiler_it_says_so(python, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}

    assert "needs a C++ compiler" in python(USE, **env).stdout
