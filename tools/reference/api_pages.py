"""api.md and the pages below api/: the contracted names and their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import torch

from tests.api.contract import NAMES, Name

_SECTIONS = {
    1: "Initialisation and devices",
    2: "Monitoring",
    3: "Streams",
    4: "Events",
    5: "Graphs",
    6: "Memory",
    7: "Random numbers",
    8: "Collectives of one process",
    9: "Range markers",
    10: "Compiled elementwise functions",
    11: "Mixed precision and numeric switches",
    12: "Dump and tuning",
    13: "Fault handling",
    14: "Typed tensors and storages",
    15: "Sanitizer",
    16: "Others",
}

# Of names without a docstring, and of those whose docstring is torch's.
_OURS = {
    "default_generators": "The devices' generators.",
    "_initialized": "Whether the runtime has started.",
    "matmul.allow_hf32": "Kept; False at first. float32 stays float32.",
    "conv.allow_hf32": "Kept; True at first. float32 stays float32.",
    "config.allow_internal_format": "Kept; there are no private layouts.",
    "Stream.stream_id": "Names the stream within its device; 0: the default.",
    "Stream.device_index": "The stream's device.",
    "Stream.device_type": "20, the number of torch's PrivateUse1.",
    "Stream.device": "The stream's torch.device.",
    "Stream.query": "Return whether all work submitted so far is done. Never waits.",
    "Stream.synchronize": "Wait for all work submitted so far; raise its error, if "
    "it failed. ACL_STREAM_TIMEOUT, in milliseconds, limits the wait.",
    "Event.record": "Mark the end of the work submitted to a stream (the current "
    "one) so far. A second record moves the event. Never waits.",
    "Event.wait": "Make later work of a stream (the current one) wait for the event. "
    "Nothing before the first record. Never waits itself.",
    "Event.query": "Return whether what was recorded is done, and raise the stream's "
    "error, if it failed; True before the first record. Never waits.",
    "Event.synchronize": "Wait for what was recorded; raise its error, if it failed.",
    "OutOfMemoryError": "torch.OutOfMemoryError, which a failed allocation raises.",
    "aclnn.allow_hf32": "The same switch as conv.allow_hf32; any truth value, no str.",
    "Event.event_id": "The event's number; 0 before the first record.",
    "Event.device": "The device of the first record; None before.",
}


def _says_all(name: Name) -> str:
    return _OURS.get(name.path) or inspect.getdoc(name.find()) or ""


def _says(name: Name) -> str:
    return " ".join(_says_all(name).split("\n\n")[0].split()).replace("|", "\\|")


def _shown(name: Name) -> str:
    if name.parameters is None:
        return name.path
    return f"{name.path}({name.parameters})"


def _file(number: int) -> str:
    words = re.findall(r"[a-z]+", _SECTIONS[number].lower())
    return f"api/{'-'.join(words)}.md"


def _table() -> Iterator[str]:
    yield from [
        "# torch.npu",
        "",
        "What each contracted name does on the virtual NPU: the first words of its",
        "docstring. A section's title leads to all of them, with units and errors.",
    ]
    for number, title in _SECTIONS.items():
        yield from ["", f"## [{title}]({_file(number)})", ""]
        yield from ["| name | on the virtual NPU |", "|---|---|"]
        for name in NAMES:
            if name.section == number:
                yield f"| `{_shown(name)}` | {_says(name)} |"


def _origin(name: Name) -> str:
    """Say whose name it is: torch.cuda's, torch_npu's."""
    theirs = name.path.replace("NPUGraph", "CUDAGraph")
    theirs = theirs.replace("NPUPluggable", "CUDAPluggable")
    theirs = theirs.replace("npu_", "cuda_")
    at = torch.cuda
    for part in theirs.split("."):
        if not hasattr(at, part):
            return "torch_npu"
        at = getattr(at, part)
    return f"torch.cuda.{theirs}"


def _section(number: int) -> Iterator[str]:
    yield from [f"# {_SECTIONS[number]}", "", "[All names](../api.md)"]
    for name in NAMES:
        if name.section != number:
            continue
        yield from ["", f"## `{name.path}`", ""]
        if name.parameters is not None:
            yield from [f"    torch.npu.{_shown(name)}", ""]
        yield from [_says_all(name), "", f"*origin: {_origin(name)}*"]


def pages() -> dict[str, Iterator[str]]:
    """Return the lines of every page, by its place on the site."""
    return {"api.md": _table()} | {_file(n): _section(n) for n in _SECTIONS}
