"""Writes docs/api.md and docs/api/: python tests/api/make_docs.py.

The table of all names, a page per section with what their docstrings say, and
the table of the requirement documents' rows.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
from contract import NAMES, OWNED_ELSEWHERE, Name
from live import CALLS
from make_rows import ROWS

DOCS = Path(__file__).resolve().parents[2] / "docs"

_DOCUMENTS = {
    "000": "torch.cuda names on an npu",
    "001": "torch.cuda, translated",
    "002": "torch_npu.npu",
    "003": "torch.cuda of old",
    "004": "torch.cuda, second translation",
}

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


def _says(name: Name) -> str:
    if name.path in OWNED_ELSEWHERE:
        return "not yet"
    if name.path in _OURS:
        return _OURS[name.path]
    text = inspect.getdoc(name.find()) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def _shown(name: Name) -> str:
    if name.parameters is None:
        return name.path
    return f"{name.path}({name.parameters})"


def _file(number: int) -> str:
    words = re.findall(r"[a-z]+", _SECTIONS[number].lower())
    return f"{'-'.join(words)}.md"


def _rows() -> list[tuple[str, str, str]]:
    lines = (line.split() for line in ROWS.read_text().splitlines())
    return [(document, row, path) for document, row, path in lines]


def page() -> str:
    """Return the text of docs/api.md."""
    lines = [
        "# torch.npu",
        "",
        "What each contracted name does on the virtual NPU: the first words of its",
        "docstring. A section's title leads to all of them, with units and errors.",
        "[The rows of the requirement documents](api/rows.md) lead to these names.",
        "Written by `python tests/api/make_docs.py`.",
    ]
    for number, title in _SECTIONS.items():
        lines += ["", f"## [{title}](api/{_file(number)})", ""]
        lines += ["| name | on the virtual NPU |", "|---|---|"]
        for name in NAMES:
            if name.section == number:
                lines.append(f"| `{_shown(name)}` | {_says(name)} |")
    return "\n".join(lines) + "\n"


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


def _documented_in(rows: list[tuple[str, str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = defaultdict(list)
    for document, _, path in rows:
        if document not in found[path]:
            found[path].append(document)
    return {path: ", ".join(documents) for path, documents in found.items()}


def _says_all(name: Name) -> str:
    if name.path in _OURS:
        return _OURS[name.path]
    return inspect.getdoc(name.find()) or ""


def section(number: int) -> str:
    """Return the text of a section's page."""
    documents = _documented_in(_rows())
    lines = [f"# {_SECTIONS[number]}", "", "[All names](../api.md)"]
    for name in NAMES:
        if name.section != number:
            continue
        facts = [f"origin: {_origin(name)}"]
        if name.path in documents:
            facts.append(f"rows in {documents[name.path]}")
        lines += ["", f"## `{name.path}`", ""]
        if name.parameters is not None:
            lines += [f"    torch.npu.{_shown(name)}", ""]
        lines += [_says_all(name), "", f"*{'; '.join(facts)}*"]
    return "\n".join(lines) + "\n"


def rows_page() -> str:
    """Return the text of docs/api/rows.md."""
    lines = [
        "# The rows of the requirement documents",
        "",
        "Each row, the name in torch.npu that it is about, and its status. *works*:",
        "the function of `tests/api/live.py` that is named calls it, and",
        "`tests/api/test_rows.py` runs that for every row.",
    ]
    sections = {name.path: name.section for name in NAMES}
    for document, title in _DOCUMENTS.items():
        of_it = [row for row in _rows() if row[0] == document]
        lines += ["", f"## {document}: {title}, {len(of_it)} rows", ""]
        lines += ["| row | torch.npu | status |", "|---|---|---|"]
        for _, row, path in of_it:
            link = f"[`{path}`]({_file(sections[path])})"
            status = f"works: {CALLS[path].__name__}" if path in CALLS else "missing"
            lines.append(f"| `{row}` | {link} | {status} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return the text of every page, by file."""
    made = {DOCS / "api.md": page(), DOCS / "api" / "rows.md": rows_page()}
    for number in _SECTIONS:
        made[DOCS / "api" / _file(number)] = section(number)
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
