"""What to do about a verdict: docs/slow_step.md and docs/hung_job.md say more."""

from __future__ import annotations

from collections.abc import Sequence

from npu_dispatch.observe.segment import OpCost
from npu_dispatch.observe.segment.listing import ProcessView
from npu_dispatch.observe.segment.sites import short

__all__ = ["action"]

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


def _elsewhere(view: ProcessView) -> str:
    return (
        "look outside of npu: Python does other work than launching, such as loading "
        f"data (py-spy record -o where.svg --pid {view.info.pid})"
    )


def _launch_less(view: ProcessView) -> str:
    steps = view.process.optimizer_steps
    if 0 < steps < 2 * sum(device.graph_replays for device in view.devices):
        return _elsewhere(view)  # steps are replays of a graph
    if steps:
        return (
            "launch a whole step at once: npu_dispatch.compile_step(model, optimizer, "
            "loss_fn)"
        )
    return (
        "launch many operators at once: torch.npu.graph, or "
        'torch.compile(model, mode="reduce-overhead")'
    )


def _cheaper(ops: Sequence[OpCost]) -> str:
    total = sum(op.ns for op in ops) or 1
    most = ", ".join(f"{op.op} {op.ns / total:.0%}" for op in ops[:3])
    return (
        f"make the kernels cheaper{f' ({most})' if most else ''}: "
        'torch.compile(model), torch.autocast("npu")'
    )


def action(
    kind: str,
    view: ProcessView,
    *,
    at: str = "",
    reason: str = "",
    ops: Sequence[OpCost] = (),
) -> str:
    """Return a sentence that says what to do, or "" where nothing is wrong.

    `at` and `reason`: where and why the host waits most. `ops` are the costliest
    first.
    """
    pid = view.info.pid
    if kind == "hung" and view.rank:
        return (
            "npu-dispatch dump --all-ranks says which rank holds up the job, and why; "
            f"npu-dispatch dump {pid} shows this one's streams"
        )
    if kind == "blocked":
        instead = _INSTEAD.get(reason, "wait less often")
        return f"at {short(at)}, {instead}" if at else instead
    if kind == "launch-bound":
        return _launch_less(view)
    if kind == "device-bound":
        return _cheaper(ops)
    return {
        "stopped": f"let it go on: kill -CONT {pid}, or continue in the debugger",
        "hung": f"npu-dispatch dump {pid} shows every stream and who waits for whom; "
        "docs/hung_job.md says how to read it",
        "failed": "read the error in the program's log, which names the line that "
        "launched the operator; torch.npu.clear_error(stream) ends that state",
        "waiting": "this rank is early: npu-dispatch dump --all-ranks names the one "
        "that comes last, and where its Python is",
        "held": "let the streams overlap: record the event as early as possible, and "
        "wait for it as late as possible",
        "host-bound": _elsewhere(view),
        "idle": 'move the model and its inputs to the device, model.to("npu"), or run '
        "with --cuda if the program names cuda",
    }.get(kind, "")
