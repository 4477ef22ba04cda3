"""torch.npu.jiterator, against the same formula written with torch operators."""

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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_lazy_conjugates_and_negatives_are_read_as_their_values(axpy, dtype):
    z, w = torch.randn(2, 3, 4, dtype=dtype)
    on_npu = z.npu()

    of_conjugate = axpy(on_npu.conj(), w.npu().mT.conj().mT, alpha=2)
    of_negative = axpy(on_npu.conj().imag, on_npu.real)

    torch.testing.assert_close(of_conjugate.cpu(), (z + 2 * w).conj().resolve_conj())
    torch.testing.assert_close(of_negative.cpu(), z.real - z.imag)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float(dtype):
    formulas = jiterator._create_multi_output_jit_fn(
        """template <typename T> void f(T x, T s, T& there, T& root, T& cut) {
          there = (x + s) - s;
          root = sqrt(x * x + x * x);
          cut = x * x - T(2) * x + T(1);
        }""",
        3,
        s=0,
    )
    x = torch.cat([torch.linspace(0.9, 1.1, 101), torch.tensor([300.0])]).to(dtype)
    f = x.float()

    there, root, cut = (t.cpu() for t in formulas(x.npu(), s=70000))

    torch.testing.assert_close(there, ((f + 70000) - 70000).to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(root, (f * f + f * f).sqrt().to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(cut, (f * f - 2 * f + 1).to(dtype), rtol=0, atol=1e-6)


def test_a_scalar_keeps_its_own_type_where_the_function_takes_it():
    power = jiterator._create_jit_fn(
        "template <typename T> T power(T x, double e) { return x * (e == 0.1); }", e=0.0
    )

    assert power(torch.ones(1, device="npu"), e=0.1).item() == 1


def test_it_may_be_captured(axpy):
    x = torch.arange(6.0, device="npu").reshape(2, 3)
    axpy(x.t(), x.t())  # compiled
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = axpy(x.t(), x.t(), alpha=2)

    for _ in range(2):
        x += 1
        graph.replay()
        torch.testing.assert_close(y, 3 * x.t())
    del x
    with pytest.raises(RuntimeError, match=r"jiterator::axpy.* uses has been freed"):
        graph.replay()


def test_a_tensor_whose_storage_was_emptied_is_refused(axpy):
    x = torch.ones(4, device="npu")
    axpy(x, x)
    x.untyped_storage().resize_(0)

    with pytest.raises(RuntimeError, match=r"jiterator::axpy: argument 1 needs 16"):
        axpy(x, x)


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


def test_the_compiled_function_is_kept_on_disk_for_its_user_alone(python, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\necho ran >> $0.log\nexec c++ "$@"\n')
    compiler.chmod(0o755)

    for _ in range(2):
        assert python(USE, CXX=str(compiler), **env).stdout.strip() == "2.0"

    assert (tmp_path / "compiler.log").read_text() == "ran\n"
    folder = tmp_path / "npu_dispatch" / "jiterator"
    assert len(list(folder.glob("*.so"))) == 1
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
