"""Replays whose nodes run at the same time compute what those in turn compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from npu_dispatch import _C

Mode = Callable[[str], str]
# The first ones are timed and run in turn.
REPLAYS = 12


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """With one there is nobody to share with."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, 2))
    yield
    torch.set_num_threads(before)


@pytest.fixture
def mode() -> Iterator[Mode]:
    before = _C.set_parallel_replays("auto")
    yield _C.set_parallel_replays
    _C.set_parallel_replays(before)


def captured(function: Callable[[], object]) -> torch.npu.NPUGraph:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        function()
    return graph


def bits(tensors: list[Tensor]) -> list[bytes]:
    return [t.detach().cpu().contiguous().numpy().tobytes() for t in tensors]


def both_ways(
    mode: Mode, make: Callable[[], tuple[Callable[[], object], list[Tensor]]]
) -> tuple[list[bytes], list[bytes]]:
    """Return what REPLAYS replays leave in the tensors, in parallel and in turn.

    `make()` returns what is captured, and the tensors that it changes.
    """
    left = []
    for how in ("always", "off"):
        torch.manual_seed(0)
        function, tensors = make()
        mode("auto")  # while it is captured: "off" would be final
        graph = captured(function)
        mode(how)
        for _ in range(REPLAYS):
            graph.replay()
        left.append(bits(tensors))
    return left[0], left[1]


def training(model: nn.Module, x: Tensor, **options: object):
    model.npu()
    x = x.npu()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, capturable=True, **options
    )

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        step()
    return step, [*model.parameters()]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.norm, self.drop = nn.LayerNorm(32), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v)))


class Towers(nn.Module):
    """Branches that have nothing to do with each other until their sum."""

    def __init__(self, towers: int = 4) -> None:
        super().__init__()
        layer = (nn.Linear, 16, 16)
        self.towers = nn.ModuleList(
            nn.Sequential(layer[0](*layer[1:]), nn.Tanh(), layer[0](*layer[1:]))
            for _ in range(towers)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([tower(x) for tower in self.towers]).sum(0)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "foreach"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), 16),
        lambda: (nn.Sequential(Attention(), Attention()), 32),
        lambda: (Towers(), 16),
    ],
    ids=["mlp", "attention with dropout", "towers"],
)
def test_a_training_step_has_the_same_bits(mode: Mode, make, fused: bool):
    def made():
        model, width = make()
        return training(model, torch.rand(8, 12, width), fused=fused)

    parallel, in_turn = both_ways(mode, made)

    assert parallel == in_turn


def test_wide_kernels_have_the_same_bits(mode: Mode):
    """Products and sums that several threads compute, and a team's convolution."""

    def made():
        x = torch.rand(300, 300).npu()
        image = torch.rand(4, 8, 64, 64).npu()
        kernel = torch.rand(8, 8, 3, 3).npu()
        out = [torch.zeros(300, 300).npu(), torch.zeros(300).npu()]
        out.append(torch.zeros(4, 8, 62, 62).npu())

        def step() -> None:
            out[0].copy_((x @ x).softmax(-1) + (x.t() @ x).exp())
            out[1].copy_(x.sum(0) + x.sum(1))
            out[2].copy_(F.conv2d(image, kernel))

        return step, out

    parallel, in_turn = both_ways(mode, made)

    assert parallel == in_turn


PLACES = 5
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "mul", "sin", "mm", "sum", "rand", "view"]),
        st.integers(0, PLACES - 1),
        st.integers(0, PLACES - 1),
        st.integers(0, PLACES - 1),
    ),
    min_size=2,
    max_size=24,
)


@given(steps=STEPS)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_any_program_has_the_same_bits(steps: list[tuple[str, int, int, int]]):
    """The tensors are overwritten in place, so nodes wait for readers, too."""

    def made():
        tensors = [torch.rand(6, 6).npu() for _ in range(PLACES)]

        def run() -> None:
            for op, a, b, to in steps:
                x, y, out = tensors[a], tensors[b], tensors[to]
                if op == "add":
                    torch.add(x, y, alpha=0.25, out=out)
                elif op == "mul":
                    out.mul_(x).clamp_(-2, 2)
                elif op == "sin":
                    out.copy_(torch.sin(x) + y)
                elif op == "mm":
                    out.copy_(torch.mm(x, y).tanh())
                elif op == "sum":
                    out[0].copy_(x.sum(0).cos())
                elif op == "rand":
                    out.uniform_()
                else:  # every second element
                    out[::2].copy_(x[1::2])

        return run, tensors

    before = _C.set_parallel_replays("auto")
    try:
        parallel, in_turn = both_ways(_C.set_parallel_replays, made)
    finally:
        _C.set_parallel_replays(before)

    assert parallel == in_turn


def test_a_failure_names_the_node_of_the_capture(mode: Mode):
    x = torch.rand(64, 64).npu()
    index = torch.zeros(4, dtype=torch.int64).npu()
    out = torch.zeros(4, 64).npu()

    def step() -> None:
        for _ in range(4):
            (x @ x).sin_()
        torch.index_select(x, 0, index, out=out)

    graph = captured(step)
    mode("always")
    for _ in range(REPLAYS):
        graph.replay()
    torch.npu.synchronize()
    index.fill_(1_000)
    graph.replay()

    with pytest.raises(Exception, match=r"node \d+, aten::index_select") as caught:
        torch.npu.synchronize()
    torch.npu.clear_error()

    assert "test_parallel.py" in str(caught.value)


def test_graphs_of_several_threads_and_devices_do_not_meet(mode: Mode):
    """Each has its own nodes, and all take the same helper threads."""
    mode("always")
    wrong: list[object] = []

    def work(number: int) -> None:
        device = f"npu:{number % torch.npu.device_count()}"
        with torch.npu.device(device), torch.npu.stream(torch.npu.Stream(device)):
            xs = [torch.full((32, 32), float(number), device=device) for _ in range(6)]
            graph = torch.npu.NPUGraph()
            with lock, torch.npu.graph(graph, capture_error_mode="thread_local"):
                for x in xs:
                    x.add_(1).mul_(1)
            for _ in range(50):
                graph.replay()
            torch.npu.current_stream().synchronize()
            found = {float(x.sum()) for x in xs}
            if found != {(number + 50.0) * 32 * 32}:
                wrong.append((number, found))

    lock = threading.Lock()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_function_of_the_host_keeps_its_place(mode: Mode):
    """Nothing says what it reads, so all before it has run, and nothing behind it."""
    xs = [torch.zeros(16, device="npu") for _ in range(4)]
    host = [torch.zeros(16).pin_memory() for _ in xs]
    seen: list[list[float]] = []

    def step() -> None:
        for to, x in zip(host, xs, strict=True):
            x.add_(1)
            to.copy_(x, non_blocking=True)
        torch.npu.current_stream().submit(
            lambda: seen.append([float(t.sum()) for t in host])
        )
        for to, x in zip(host, xs, strict=True):
            to.copy_(x * 0, non_blocking=True)

    graph = captured(step)
    mode("always")
    for _ in range(REPLAYS):
        graph.replay()
    torch.npu.synchronize()

    assert seen == [[16.0 * (n + 1)] * 4 for n in range(REPLAYS)]


def test_the_thread_that_captures_has_one_thread_and_so_have_replays(mode: Mode):
    torch.set_num_threads(1)
    xs = [torch.zeros(8, device="npu") for _ in range(4)]
    graph = captured(lambda: [x.add_(1) for x in xs])
    mode("always")
    for _ in range(REPLAYS):
        graph.replay()

    assert [x.tolist() for x in xs] == [[float(REPLAYS)] * 8] * 4
    with pytest.raises(RuntimeError, match="node_times"):
        graph.node_times()


def test_times_and_dependencies_are_known_after_the_first_replays(mode: Mode):
    x = torch.rand(64, 64).npu()
    out = [torch.zeros(64, 64).npu() for _ in range(2)]

    def step() -> None:
        out[0].copy_(x)
        out[1].copy_(x)
        out[0].add_(out[1])

    graph = captured(step)
    for _ in range(REPLAYS):
        graph.replay()
    torch.npu.synchronize()

    after, ns = graph.node_times()

    assert after == [[2], [2], []]
    assert all(0 < t < 1_000_000_000 for t in ns)
    assert _C.makespan(after, ns, 1) == sum(ns)
