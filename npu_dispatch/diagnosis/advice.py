"""What to try next, given a verdict: docs/slow_step.md says more."""

from __future__ import annotations

from collections.abc import Sequence

from npu_dispatch.diagnosis.verdict import Verdict, short
from npu_dispatch.stats import OpCost, SiteWaits

__all__ = ["advice"]

# By the reason of the wait.
_INSTEAD = {
    "item": "keep the value on the device and read it once in a hundred steps",
    "copy": "copy with non_blocking=True into pinned memory, and read it a step later",
    "h2d": 'use DataLoader(pin_memory=True) and .to("npu", non_blocking=True)',
    "operator": "use an operator whose result has a fixed shape, such as torch.where "
    "instead of a boolean index",
    "stream_sync": "let streams wait for each other with wait_stream() instead",
    "event_sync": "let the other stream wait for the event instead",
    "device_sync": "call synchronize() only where the program measures time",
    "allocator": "use less memory: the allocator waits for blocks to come free",
    "full_queue": "launch less at once: the queue is full, so the device is behind",
}


def advice(
    verdict: Verdict,
    waits: Sequence[SiteWaits],
    ops: Sequence[OpCost],
    *,
    trains: bool,
    replays: bool,
    away: bool,
) -> str:
    """Return a sentence that says what to try, or "" where nothing is wrong.

    `waits` and `ops` are the costliest first. `trains`: an optimizer has stepped.
    `replays`: steps are replays of a graph. `away`: most of the time the host was on
    its way to no launch.
    """
    if verdict.kind == "blocked" and waits:
        worst = waits[0]
        instead = _INSTEAD.get(worst.reason, "wait less often")
        return f"at {short(worst.at)}, {instead}"
    if verdict.kind == "launch-bound" and (away or replays):
        return (
            "look outside of npu: Python does other work than launching, such as "
            "loading data (py-spy record -o where.svg -- python SCRIPT)"
        )
    if verdict.kind == "launch-bound" and trains:
        return (
            "launch a whole step at once: npu_dispatch.compile_step(model, optimizer, "
            "loss_fn)"
        )
    if verdict.kind == "launch-bound":
        return (
            "launch many operators at once: torch.npu.graph, or "
            'torch.compile(model, mode="reduce-overhead")'
        )
    if verdict.kind == "device-bound":
        total = sum(op.ns for op in ops) or 1
        most = ", ".join(f"{op.op} {op.ns / total:.0%}" for op in ops[:3])
        return (
            f"make the kernels cheaper ({most}): torch.compile(model), "
            'torch.autocast("npu")'
        )
    if verdict.kind == "failed":
        return "read the error above, which names the line that launched the operator"
    if verdict.kind == "idle":
        return (
            'move the model and its inputs to the device, model.to("npu"), or run with '
            "--cuda if the program names cuda"
        )
    return ""
