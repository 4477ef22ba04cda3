"""The engine's findings, told with names, lines and a call that would order them."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from npu_dispatch.config import Config
from npu_dispatch.npu.streams.stream import line_of_stream
from npu_dispatch.sanitizer import Access, Frame, Report
from npu_dispatch.words import stream_title


def report_of(finding: dict[str, Any]) -> Report:
    """Return the report of a finding, with a call that would have ordered it."""
    kind = finding["kind"]
    first, second = _access(finding["first"]), _access(finding["second"])
    collective = _is_collective(first.op) or _is_collective(second.op)
    if collective and kind == "unordered-foreign-launch":
        kind = "unordered-collective"
    stale = kind == "allocator-reuse"
    return Report(
        kind=kind,
        first=first,
        second=second,
        allocation=_stack(finding["allocated_before" if stale else "allocated"]),
        freed=_stack(finding["freed_before" if stale else "freed"]),
        bytes=finding["bytes"],
        pinned=finding["pinned"],
        edge=_edge(kind, first, second),
        suggestion=_suggestion(kind, finding, first),
        pid=os.getpid(),
        rank=_rank(),
    )


def _rank() -> int | None:
    """Return the process's rank: of its group, or as a launcher says it."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = Config.read().rank
    return rank if rank >= 0 else None


def _is_collective(op: str) -> bool:
    """Whether it is a call of a process group: collectives and messages."""
    return op.startswith("hccl:")


# What the engine calls the host's write of memory that has one (sanitizer.cpp).
_ESCAPED = "an array or pointer taken here"


def _access(side: dict[str, Any]) -> Access:
    return Access(
        op=side["op"],
        argument=_argument(side["op"], side["argument"], side["writes"]),
        stream=_stream(side),
        stream_made=line_of_stream(side["device"], side["stream"]),
        task=side["task"],
        mode="write" if side["writes"] else "read",
        range=side["range"],
        stack=_stack(side["frames"]),
        forward=_stack(side["forward"]),
    )


def _stream(side: dict[str, Any]) -> str:
    if side["stream"] < 0:
        return "the host"
    return stream_title(side["device"], side["stream"])


def _argument(op: str, index: int, writes: bool) -> str:
    """Return an argument's name, as far as the schema alone tells which it is."""
    if op == "memcpy":
        return ("destination", "source")[index]
    if op == _ESCAPED:
        return "the source"
    if _is_collective(op):
        return "its output" if writes else "its input"
    name, _, overload = op.partition(".")
    try:
        schema = torch._C._get_schema(name, overload)
    except RuntimeError:
        return f"tensor argument {index}"
    tensors = [
        a
        for a in schema.arguments
        if str(a.type) in ("Tensor", "Optional[Tensor]") or "List" in str(a.type)
    ]
    tensors = [a for a in tensors if "Tensor" in str(a.type)]
    if any(str(a.type) != "Tensor" for a in tensors[: index + 1]):
        return f"tensor argument {index}"
    if index >= len(tensors):
        return "its result"
    alias = tensors[index].alias_info
    if writes and not (alias and alias.is_write):
        return "its result"
    return f"`{tensors[index].name}`"


def _edge(kind: str, first: Access, second: Access) -> str:
    done = f"{first.op} (task {first.task} of {first.stream})"
    if kind == "use-after-free":
        return "a reference that keeps the memory until the launch"
    if kind == "allocator-reuse":
        return f"{done} finished before its memory is allocated again"
    if kind == "overwritten-result":
        return "a replay of the graph whose result it is, behind that of the other one"
    if second.op == _ESCAPED:
        return f"{done} finished before the host writes through the array or pointer"
    return f"{done} finished before {second.op} on {second.stream}"


def _suggestion(kind: str, finding: dict[str, Any], made: Access) -> str:
    first, second = finding["first"], finding["second"]
    if kind == "use-after-free":
        return "keep the tensor alive until the operator has been called"
    if kind == "allocator-reuse":
        return f"tensor.record_stream({_name(first)}) before the tensor is freed"
    if kind == "overwritten-result":
        return (
            "replay graphs of a pool in the order of their captures and read their "
            "results before the next round, or give each a pool of its own"
        )
    if first["of_group"]:
        at = f" at {made.where.file}:{made.where.line}" if made.where else ""
        return (
            f"work.wait() before {second['op']}{_where(second)}; work is what "
            f"{first['op']}{at} has returned"
        )
    if second["of_group"]:
        return (
            f"torch.npu.current_stream().wait_stream({_name(first)}) before "
            f"{second['op']}, which runs behind the stream that is current at its call"
        )
    if second["stream"] < 0:
        return (
            f"{_name(first)}.synchronize(), or synchronize an event recorded after "
            f"{first['op']}, before the host touches the memory"
        )
    return f"{_name(second)}.wait_stream({_name(first)}) before {second['op']}"


def _where(side: dict[str, Any]) -> str:
    """Return with which current stream to call `work.wait()` for an access."""
    if side["stream"] < 0:
        return ""
    if side["of_group"]:
        return ", with the stream that is current at its call"
    return f", with {_name(side)} as the current stream"


def _name(side: dict[str, Any]) -> str:
    """Return a Python expression for the stream of one side."""
    if side["stream"] == 0:
        return f"torch.npu.default_stream({side['device']})"
    return (
        f"torch.npu.Stream(stream_id={side['stream']}, device_index={side['device']})"
    )


def _stack(frames: list[tuple[str, int, str, bool]]) -> tuple[Frame, ...]:
    return tuple(Frame(*frame) for frame in frames)
