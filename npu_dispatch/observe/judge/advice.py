"""What to do about a verdict; docs/slow_step.md and troubleshooting.md say more."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from npu_dispatch.observe.segment.listing import ProcessView
from npu_dispatch.observe.segment.values import OpCost
from npu_dispatch.words import short

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

CROWDED = (
    "stop the other programs, or limit them to other cores (taskset -cp CORES "
    "THEIR_PID)"
)
_WHOLE_STEP = "npu_dispatch.compile_step(model, optimizer, loss_fn)"
_ACTIONS = {
    "stopped": "let it go on: kill -CONT {pid}, or continue in the debugger",
    "hung": "npu-dispatch dump {pid} shows every stream and who waits for whom; "
    "docs/troubleshooting.md says how to read it",
    "unrecorded": "record the event that this line waits for: event.record(stream), on "
    "the stream whose work it waits for; npu-dispatch dump {pid} shows every stream",
    "hung rank": "npu-dispatch dump --all-ranks says which rank holds up the job, and "
    "why; npu-dispatch dump {pid} shows this one's streams",
    "failed": "fix the operator's arguments at this line; the stream drops its work "
    "until torch.npu.clear_error(stream)",
    "waiting": "this rank is early: npu-dispatch dump --all-ranks names the one that "
    "comes last, and where its Python is",
    "held": "let the streams overlap: record the event as early as possible, and wait "
    "for it as late as possible",
    "host-bound": "look outside of npu: Python does other work than launching, such as "
    "loading data (py-spy record -o where.svg --pid {pid})",
    "idle": 'move the model and its inputs to the device, model.to("npu"), or run with '
    "--cuda if the program names cuda",
}
# Kernels whose time no compiler changes, and a product that is worth another dtype.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "mkldnn_rnn_layer")
_LARGE_NS = 100_000


def _name(op: OpCost) -> str:
    return op.op.removeprefix("aten::").split(".")[0].removesuffix("_backward")


@functools.cache
def _computes_bf16() -> bool:
    """Return whether this machine's cores multiply numbers of bfloat16."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16", "bf16"}.intersection(flags))


def _about_speed(kind: str, view: ProcessView, ops: Sequence[OpCost]) -> str:
    """Return what makes a process faster that is bound by its launches or kernels."""
    steps = view.process.optimizer_steps
    replays = sum(device.graph_replays for device in view.devices)
    captured = replays > 0 and steps < 2 * replays  # steps are replays of a graph
    compiled = any(op.op.startswith("npu_fused") for op in ops)
    refused = not captured and any(
        sum(device.graph_capture_failures.values()) for device in view.devices
    )
    if kind == "launch-bound":
        if captured:
            return _ACTIONS["host-bound"]
        if refused:
            return "fix what kept a graph from being captured: a warning names it"
        if steps:
            return f"launch a whole step at once: {_WHOLE_STEP}"
        how = 'torch.compile(model, mode="reduce-overhead")'
        if not compiled:
            how = f"torch.npu.graph, or {how}"
        return f"launch many operators at once: {how}"
    total = sum(op.ns for op in ops)
    products = [op for op in ops if _name(op) in _PRODUCTS]
    mostly_products = 2 * sum(op.ns for op in products) > total > 0
    large = any(op.ns > _LARGE_NS * op.tasks for op in products)
    costliest = ", ".join(f"{op.op} {op.ns / total:.0%}" for op in ops[:3] if total)
    spent = f" ({costliest})" if costliest else ""
    if not (captured or compiled or refused):
        how = _WHOLE_STEP if steps else "torch.compile(model)"
        return f"make the kernels fewer and cheaper{spent}: {how}"
    if mostly_products and large and _computes_bf16():
        return f'multiply in half precision{spent}: torch.autocast("npu")'
    return f"the kernels take the time{spent}: use more cores or a smaller model"


def advice(
    kind: str,
    view: ProcessView,
    *,
    at: str = "",
    reason: str = "",
    ops: Sequence[OpCost] = (),
) -> str:
    """Return a sentence that says what to do, or "" where nothing is wrong.

    `kind` is a verdict's, or "unrecorded". `at` and `reason`: where and why the host
    waits most. `ops` are the costliest first.
    """
    if kind == "blocked":
        instead = _INSTEAD.get(reason, "wait less often")
        return f"at {short(at)}, {instead}" if at else instead
    if kind in ("launch-bound", "device-bound"):
        return _about_speed(kind, view, ops).format(pid=view.info.pid)
    if kind == "hung" and view.rank:
        kind = "hung rank"
    return _ACTIONS.get(kind, "").format(pid=view.info.pid)
