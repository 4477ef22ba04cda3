"""What a failed task raises.

A task that failed on the device raises DeviceError at the next launch or wait
of its stream, with the lines that launched it.
"""

from __future__ import annotations

import os
import re
import site
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import npu_dispatch
from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import ACL_FAILED, coded

_ADVICE = (
    "The operator was launched earlier and failed on the device. Stream {stream} of "
    "npu:{device} accepts no more work until torch.npu.clear_error(stream) is called "
    "for it, or torch.npu.reset_device({device}) for all of the device's streams."
)


class DeviceError(torch.AcceleratorError):
    """A task failed on the device. Mirrors torch.AcceleratorError.

    Where the task is a wait for another stream, and what failed is there,
    `__cause__` is the error of the task that failed first.

    Where the operator raises IndexError, ValueError, TypeError, NotImplementedError,
    torch.linalg.LinAlgError or torch.OutOfMemoryError on cpu, the exception here is of
    a subclass that derives from that class, too. So it is where a function that was
    given to Stream.submit() raises one of them, or MemoryError.
    """

    op: str
    """Schema name of the operator, "aten::embedding"."""
    device: int
    stream: int
    """Id of the stream within its device."""
    task: int
    """Position of the task in its stream, from 0."""
    arguments: str
    """Shapes of what the task read and wrote: "[4, 2] [1] [1, 2]"."""
    text: str
    """What the operator's kernel said."""
    launch_stack: traceback.StackSummary
    """Where it was launched, outermost call first, as tracebacks are."""
    forward_stack: traceback.StackSummary
    """For a task of a backward pass, where its forward call was; else empty."""


class DeviceIndexError(DeviceError, IndexError):
    """An index out of range, found on the device."""


class DeviceValueError(DeviceError, ValueError):
    """A wrong value, found on the device."""


class DeviceTypeError(DeviceError, TypeError):
    """A wrong type, found on the device."""


class DeviceNotImplementedError(DeviceError, NotImplementedError):
    """The kernel does not support this case."""


class DeviceOutOfMemoryError(DeviceError, torch.OutOfMemoryError, MemoryError):
    """A kernel, or a function given to submit(), found no memory on host or device."""


class DeviceLinAlgError(DeviceError, torch.linalg.LinAlgError):  # type: ignore[misc, name-defined]
    """A matrix of which the result cannot be computed, found on the device."""


# The classes by npu_code, which is in csrc/driver/driver.h.
_CLASSES: dict[int, type[DeviceError]] = {
    2: DeviceIndexError,
    3: DeviceValueError,
    4: DeviceTypeError,
    5: DeviceNotImplementedError,
    6: DeviceOutOfMemoryError,
    7: DeviceLinAlgError,
}


def stack_summary(site: int) -> traceback.StackSummary:
    """Return the call stack that a task carries as `site`, outermost first."""
    frames = [
        traceback.FrameSummary(file, line, function, lookup_line=False)
        for file, line, function in reversed(_C.call_stack(site))
    ]
    return traceback.StackSummary.from_list(frames)


def from_failure(failure: Mapping[str, Any]) -> DeviceError:
    """Make the exception for a failed task, from _C.stream_error's fields."""
    lines = [failure["message"]]
    cause = from_failure(failure["cause"]) if failure["cause"] else None
    if cause and (origin := _C.call_line(failure["cause"]["site"])):
        lines.append(f"  which was launched at {origin}")
    if where := _C.call_line(failure["site"]):
        lines.append(f"  launched at {where}")
    if forward := _C.call_line(failure["forward_site"]):
        lines.append(f"  in the backward of the call at {forward}")
    if failure["arguments"]:
        lines.append(f"  with arguments of shapes {failure['arguments']}")
    if failure["code"]:  # else a wait was given up, and the task goes on
        lines.append(_ADVICE.format_map(failure))
    kind = _class_of(failure)
    error = coded(kind, "\n".join(lines), ACL_FAILED)
    for name in ("op", "device", "stream", "task", "arguments", "text"):
        setattr(error, name, failure[name])
    error.launch_stack = stack_summary(failure["site"])
    error.forward_stack = stack_summary(failure["forward_site"])
    error.__cause__ = cause
    return error


_BY_PREFIX: dict[str, type[DeviceError]] = {}


def raise_as(prefix: str, kind: type[DeviceError]) -> None:
    """Raise failures of operators whose names begin with the prefix as `kind`."""
    _BY_PREFIX[prefix] = kind


def _class_of(failure: Mapping[str, Any]) -> type[DeviceError]:
    for prefix, kind in _BY_PREFIX.items():
        # The operator itself, or a stream that waited for its end.
        behind = rf"stream which has failed:.* {re.escape(prefix)}"
        if failure["op"].startswith(prefix) or re.search(behind, failure["text"]):
            return kind
    return _CLASSES.get(failure["code"], DeviceError)


def frame_origins() -> list[tuple[str, bool]]:
    """Return (folder, whether it holds packages) for files that are not the user's.

    A user never looks for a line in torch, this package or the standard library. A
    line in an installed package is shown when no file of the user's own is in the
    stack.
    """
    # Not of sysconfig, which loads all variables of Python's own build.
    packages = {
        Path(torch.__file__).parent: False,
        Path(npu_dispatch.__file__).parent: False,
        Path(traceback.__file__).parent: False,
        **{Path(folder): True for folder in site.getsitepackages()},
        Path(site.getusersitepackages()): True,
    }
    deepest_first = sorted(packages, key=lambda folder: -len(folder.parts))
    return [(f"{folder}{os.sep}", packages[folder]) for folder in deepest_first]
