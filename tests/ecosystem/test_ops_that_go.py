"""Operators whose kernels are exchanged or taken away while calls are queued."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch.library import Library

Kernel = Callable[[torch.Tensor], torch.Tensor]


def library_of(name: str, kernel: Kernel) -> Library:
    """Return the library of an operator that was called and of which much is known."""
    library = Library("npu_goes", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, kernel, "CPU")
    torch.library.register_fake(
        f"npu_goes::{name}", lambda x: torch.empty_like(x), lib=library
    )
    op = getattr(torch.ops.npu_goes, name)
    for _ in range(3):
        op(torch.ones(3, device="npu"))
    torch.npu.synchronize()
    return library


def destroyed(library: Library) -> None:
    library._destroy()


def overridden(library: Library) -> None:
    library.impl("op_overridden", lambda x: x + 100, "CPU", allow_override=True)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("change", [destroyed, overridden], ids=lambda c: c.__name__)
def test_queued_calls_have_the_kernel_of_their_launch(change):
    name = f"op_{change.__name__}"
    library = library_of(name, torch.neg)
    x = torch.ones(1 << 20, device="npu")
    for _ in range(100):
        x.mul_(1.0)  # what the queue is busy with

    y = getattr(torch.ops.npu_goes, name)(x)
    change(library)

    assert torch.equal(y.cpu(), torch.full((1 << 20,), -1.0))
    library._destroy()


def test_queued_calls_run_before_a_library_that_nobody_has():
    library = library_of("dropped", torch.neg)
    x = torch.ones(1 << 20, device="npu")
    for _ in range(100):
        x.mul_(1.0)

    y = torch.ops.npu_goes.dropped(x)
    del library
    gc.collect()

    assert torch.equal(y.cpu(), torch.full((1 << 20,), -1.0))


def test_a_call_that_could_not_run_before_fails():
    library = library_of("stuck", torch.neg)
    x, gate = torch.ones(3, device="npu"), torch.npu.ExternalEvent()
    gate.wait(torch.npu.current_stream())
    torch.ops.npu_goes.stuck(x)

    with pytest.warns(RuntimeWarning, match="npu_goes::stuck: npu:0 stream 0 waits"):
        library._destroy()
    gate.record(torch.npu.Stream())

    with pytest.raises(torch.npu.DeviceError, match="npu_goes::stuck was taken away"):
        torch.npu.synchronize()
    torch.npu.clear_error()


def test_a_replay_of_an_operator_that_has_gone_fails():
    library = library_of("replayed", torch.neg)
    x, graph = torch.ones(3, device="npu"), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.ops.npu_goes.replayed(x)
    library.impl("replayed", lambda x: x + 1, "CPU", allow_override=True)
    library._destroy()

    graph.replay()

    with pytest.raises(
        torch.npu.DeviceError, match="npu_goes::replayed was taken away"
    ):
        torch.npu.synchronize()
    torch.npu.clear_error()
