"""Storages that are resized, shortened, emptied, or that nobody has written."""

import pytest
import torch
import torch.nn.functional as F

from tests.ecosystem.both import alike, same
from tests.graphs.captured import captured


@pytest.mark.parametrize("size", [(3, 2), (2, 3), (4, 5), (1,), ()])
@pytest.mark.parametrize("how", [{}, {"memory_format": torch.contiguous_format}])
def test_resize_of_a_transposed_tensor(size, how):
    def run(x):
        t = x.t().resize_(size, **how)
        return t.flatten()[:6], t.stride()

    same(run, torch.arange(6.0).reshape(2, 3))


def test_resize_to_channels_last():
    x = torch.rand(2, 3, 4, 5).npu()
    x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


MADE = {
    "empty": lambda **k: torch.empty(5, **k),
    "empty_strided": lambda **k: torch.empty_strided((2, 3), (1, 2), **k),
    "empty_like": lambda **k: torch.empty_like(torch.zeros(2, 3, **k)),
    "new_empty": lambda **k: torch.zeros(2, **k).new_empty(4),
    "resize_": lambda **k: torch.zeros(2, **k).resize_(9),
    "resize_ of a part": lambda **k: torch.zeros(8, **k)[2:4].resize_(9),
}
DTYPES = [torch.float32, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MADE)
@pytest.mark.usefixtures("deterministic")
def test_unwritten_memory_is_filled_where_the_process_asks_for_it(name, dtype):
    alike(lambda d: MADE[name](device=d, dtype=dtype), equal_nan=True, rtol=0, atol=0)


@pytest.mark.usefixtures("deterministic")
def test_the_fill_can_be_switched_off():
    torch.npu.synchronize()
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        before = torch.full((64,), 3.0, device="npu")
        del before
        assert not torch.empty(64, device="npu").isnan().all()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


npu = torch.npu


def shrunk(nbytes=0, n=8):
    x = torch.arange(float(n), device="npu")
    npu.synchronize()
    x.untyped_storage().resize_(nbytes)
    return x


def full(n=8):
    return torch.ones(n, device="npu")


# What the error begins with | a call with x, which is emptied.
CALLS = """
aten::add.Tensor: argument 'self' | x + 1
aten::add.Tensor: argument 'other' | full() + x
aten::add.out: argument 'out' | torch.add(full(), 1, out=x)
aten::fill_.Scalar: argument 'self' | x.fill_(1)
aten::mm: argument 'self' | x.view(2, 4) @ full().view(4, 2)
aten::addmm: argument 'mat1' | F.linear(x.view(2, 4), full().view(2, 4), full(2))
aten::cat: argument 'tensors' | torch.cat([full(), x])
aten::_foreach_add.Scalar: argument 'self' | torch._foreach_add([full(), x], 1)
aten::_foreach_mul_.Scalar: argument 'self' | torch._foreach_mul_([full(), x], 2)
aten::index.Tensor: argument 'self' | x[torch.tensor([0]).npu()]
aten::sort.stable: argument 'self' | x.sort()
aten::nonzero: argument 'self' | x.nonzero()
aten::equal: argument 'other' | torch.equal(full(), x)
aten::_local_scalar_dense: argument 'self' | shrunk(n=1).item()
aten::copy_: argument 'src' | x.tolist()
aten::copy_: argument 'self' | x.copy_(torch.ones(8))
function: tensor 1 | npu.current_stream().submit(print, full(), x, name="function")
"""


@pytest.mark.parametrize("row", CALLS.strip().splitlines())
def test_a_call_with_an_emptied_storage_raises_and_names_it(row):
    said, call = row.split(" | ")

    with pytest.raises(RuntimeError) as raised:
        eval(call, globals() | {"x": shrunk()})

    assert str(raised.value).startswith(said)
    assert "which has 0; the storage was resized" in str(raised.value)
    npu.synchronize()


def test_a_call_whose_plan_is_known_raises_and_goes_on_when_there_is_memory_again():
    x, y = full(), full()
    calls = [
        lambda: x + y,
        lambda: x.mul_(2),
        lambda: F.linear(x.view(2, 4), y.view(2, 4), y[:2]),
        lambda: torch._foreach_add([y, x], 1),
    ]
    for call in calls:
        call()
    x.untyped_storage().resize_(0)
    for call in calls:
        with pytest.raises(RuntimeError, match="32 bytes of its storage, which has 0"):
            call()

    x.untyped_storage().resize_(32)
    x.fill_(3)

    assert calls[0]().tolist() == [4.0] * 8
    assert [t.tolist() for t in calls[3]()] == [[2.0] * 8, [4.0] * 8]


VIEWS = [
    lambda x: x[4:],
    lambda x: x[::2],
    lambda x: x.view(2, 4).t(),
    lambda x: x.view(2, 4)[:, 3],
    lambda x: x.as_strided((3,), (0,), 7),
]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_shortened_storage_raises_where_it_ends_behind_it(view):
    x = torch.arange(8.0, device="npu")
    late = view(x)
    late.clone()
    x.untyped_storage().resize_(16)

    with pytest.raises(RuntimeError, match="of its storage, which has 16"):
        late + 1

    assert (x[:4] * 1).tolist() == [0, 1, 2, 3]
    assert (x.view(2, 4)[0] + 1).tolist() == [1, 2, 3, 4]


def test_a_tensor_without_elements_needs_no_memory():
    x = shrunk()

    assert (x[:0] + 1).shape == (0,)
    assert x.view(2, 4)[:, :0].sum().item() == 0
    assert torch.cat([full(), x[8:]]).tolist() == [1] * 8
    assert x[2:2].tolist() == []
    assert torch.empty_like(x).shape == (8,)


def test_an_out_argument_that_the_call_resizes_gets_its_memory():
    out = shrunk(n=3)

    with pytest.warns(UserWarning, match="was resized"):
        torch.add(full(), 1, out=out)

    assert out.tolist() == [2] * 8


def test_a_number_of_the_host_without_memory_raises():
    number = torch.tensor(2.0)
    number.untyped_storage().resize_(0)

    with pytest.raises(RuntimeError, match=r"mul\.Tensor: argument 'other' needs"):
        full() * number
    with pytest.raises(RuntimeError, match="aten::copy_: argument 'src' needs"):
        number.npu()


def test_a_part_of_a_sparse_tensor_counts():
    values = full(3)
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]).npu(), values, (4,))
    sparse._values().untyped_storage().resize_(0)

    with pytest.raises(RuntimeError, match="needs 12 bytes of its storage"):
        sparse.to_dense()


def test_a_replay_whose_storage_was_emptied_raises():
    x = full()
    graph, y = captured(lambda: x + 1)
    graph.replay()
    assert y.tolist() == [2] * 8
    x.untyped_storage().resize_(0)

    with pytest.raises(RuntimeError, match="has been freed"):
        graph.replay()
    with npu.graph(npu.NPUGraph()), pytest.raises(RuntimeError, match="which has 0"):
        x + 1


PROGRAM = """
import torch, npu_dispatch
x, y = torch.ones(8, device="npu"), torch.ones(8, device="npu:1")
torch.npu.synchronize()
def refused(call):
    try:
        call()
    except RuntimeError as error:
        print(str(error).partition(" of its storage")[0])
x.untyped_storage().resize_(0)
refused(lambda: x + 1)
refused(lambda: x.to("npu:1"))
refused(lambda: y.copy_(x))
refused(lambda: x.copy_(y))
"""


def test_under_the_sanitizer_and_between_devices_it_raises(python):
    done = python(PROGRAM, TORCH_NPU_SANITIZER="1", NPU_DISPATCH_DEVICES="2")

    assert done.stdout.splitlines() == [
        "aten::add.Tensor: argument 'self' needs 32 bytes",
        "aten::copy_: argument 'src' needs 32 bytes",
        "aten::copy_: argument 'src' needs 32 bytes",
        "aten::copy_: argument 'self' needs 32 bytes",
    ]
