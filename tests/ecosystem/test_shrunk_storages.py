"""A call that would use a tensor whose storage was emptied or shortened raises."""

from __future__ import annotations

import pytest
import torch

npu = torch.npu


def shrunk(nbytes: int = 0, n: int = 8) -> torch.Tensor:
    x = torch.arange(float(n), device="npu")
    npu.synchronize()
    x.untyped_storage().resize_(nbytes)
    return x


def full(n: int = 8) -> torch.Tensor:
    return torch.ones(n, device="npu")


CALLS = {
    "aten::add.Tensor: argument 'self'": lambda x: x + 1,
    "aten::add.Tensor: argument 'other'": lambda x: full() + x,
    "aten::add.out: argument 'out'": lambda x: torch.add(full(), 1, out=x),
    "aten::fill_.Scalar: argument 'self'": lambda x: x.fill_(1),
    "aten::mm: argument 'self'": lambda x: x.view(2, 4) @ full().view(4, 2),
    "aten::addmm: argument 'mat1'": lambda x: torch.nn.functional.linear(
        x.view(2, 4), full().view(2, 4), full(2)
    ),
    "aten::cat: argument 'tensors'": lambda x: torch.cat([full(), x]),
    "aten::_foreach_add.Scalar: argument 'self'": lambda x: torch._foreach_add(
        [full(), x], 1
    ),
    "aten::_foreach_mul_.Scalar: argument 'self'": lambda x: torch._foreach_mul_(
        [full(), x], 2
    ),
    "aten::index.Tensor: argument 'self'": lambda x: x[torch.tensor([0]).npu()],
    "aten::sort.stable: argument 'self'": lambda x: x.sort(),
    "aten::nonzero: argument 'self'": lambda x: x.nonzero(),
    "aten::equal: argument 'other'": lambda x: torch.equal(full(), x),
    "aten::_local_scalar_dense: argument 'self'": lambda x: shrunk(n=1).item(),
    "aten::copy_: argument 'src'": lambda x: x.tolist(),
    "aten::copy_: argument 'self'": lambda x: x.copy_(torch.ones(8)),
    "function: tensor 1": lambda x: npu.current_stream().submit(
        lambda a, b: None, full(), x, name="function"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_an_emptied_storage_raises_and_names_it(name):
    x = shrunk()

    with pytest.raises(RuntimeError) as raised:
        CALLS[name](x)

    assert str(raised.value).startswith(name)
    assert "which has 0; the storage was resized" in str(raised.value)
    npu.synchronize()


def test_a_call_whose_plan_is_known_raises_and_goes_on_when_there_is_memory_again():
    x, y = full(), full()
    calls = [
        lambda: x + y,
        lambda: x.mul_(2),
        lambda: torch.nn.functional.linear(x.view(2, 4), y.view(2, 4), y[:2]),
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


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[4:],
        lambda x: x[::2],
        lambda x: x.view(2, 4).t(),
        lambda x: x.view(2, 4)[:, 3],
        lambda x: x.as_strided((3,), (0,), 7),
    ],
)
def test_a_view_of_a_shortened_storage_raises_where_it_ends_behind_it(view):
    x = torch.arange(8.0, device="npu")
    inside = view(x).clone()
    late = view(x)
    x.untyped_storage().resize_(16)

    with pytest.raises(RuntimeError, match="of its storage, which has 16"):
        late + 1

    assert (x[:4] * 1).tolist() == [0, 1, 2, 3]
    assert (x.view(2, 4)[0] + 1).tolist() == [1, 2, 3, 4]
    assert inside.numel()


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
    graph = npu.NPUGraph()
    with npu.graph(graph):
        y = x + 1
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
