"""Which backend compile_step() takes where none is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import npu_dispatch


def start(**how):
    torch.manual_seed(0)
    cpu = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    own = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).npu()
    own.load_state_dict(cpu.state_dict())
    step = npu_dispatch.compile_step(
        own, torch.optim.Adam(own.parameters(), lr=0.05), nn.MSELoss(), **how
    )
    optimizer = torch.optim.Adam(cpu.parameters(), lr=0.05)

    def both(rows=4):
        """Take a step on both devices with a batch, and compare the losses."""
        x, y = torch.randn(rows, 6), torch.randn(rows, 3)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(cpu(x), y)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, y).cpu(), loss.detach())

    def same():
        torch.npu.synchronize()
        for mine, want in zip(own.parameters(), cpu.parameters(), strict=True):
            torch.testing.assert_close(mine.detach().cpu(), want.detach())

    return step, both, same


def test_a_step_trains_while_it_looks_for_the_faster_backend_and_keeps_that():
    step, both, same = start()
    assert step.backend is None
    for count in range(30):
        both(4 if count % 3 else 5)  # of which one shape is captured while it looks
        torch.npu.synchronize()

    assert step.backend in ("inductor", "eager")
    assert step.captures == 2
    assert step.reason is None
    same()


def test_to_look_for_the_faster_backend_waits_for_nothing():
    step, both, _ = start()
    for _ in range(3):
        both()
    torch.npu.synchronize()
    x, y = torch.randn(4, 6).npu(), torch.randn(4, 3).npu()
    torch.npu.set_sync_debug_mode("error")
    try:
        for _ in range(30):
            step(x, y)
    finally:
        torch.npu.set_sync_debug_mode("default")
    torch.npu.synchronize()
    step(x, y)

    assert step.backend in ("inductor", "eager")
    assert (step.captures, step.reason) == (1, None)


def broken(graph, inputs):
    raise RuntimeError("no code for this")


def test_where_inductor_fails_the_step_is_captured_without_it(monkeypatch):
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda *a, **k: 1 / 0)
    step, both, same = start()
    for _ in range(6):
        both()

    assert (step.backend, step.captures, step.reason) == ("eager", 1, None)
    same()


def test_a_named_backend_that_fails_leaves_the_plain_loop():
    step, both, same = start(backend=broken)
    with pytest.warns(UserWarning, match="no code for this"):
        for _ in range(4):
            both()

    assert (step.captures, step.replays) == (0, 0)
    same()


def test_deterministic_algorithms_leave_no_choice():
    torch.use_deterministic_algorithms(True)
    try:
        step, _, _ = start()
    finally:
        torch.use_deterministic_algorithms(False)

    assert step.backend == "inductor"
