"""Writes docs/api.md, the table of the contract: python tests/api/make_docs.py."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from contract import NAMES, OWNED_ELSEWHERE, Name

DOCS = Path(__file__).resolve().parents[2] / "docs" / "api.md"

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
_ATTRIBUTES = {
    "default_generators": "The devices' generators.",
    "_initialized": "Whether the runtime has started.",
    "matmul.allow_hf32": "Kept; False at first. float32 stays float32.",
    "conv.allow_hf32": "Kept; True at first. float32 stays float32.",
    "config.allow_internal_format": "Kept; there are no private layouts.",
    "Stream.stream_id": "Names the stream within its device; 0: the default.",
    "Stream.device_index": "The stream's device.",
    "Stream.device_type": "20, the number of torch's PrivateUse1.",
    "Stream.device": "The stream's torch.device.",
    "Event.event_id": "The event's number; 0 before the first record.",
    "Event.device": "The device of the first record; None before.",
}


def _says(name: Name) -> str:
    if name.path in OWNED_ELSEWHERE:
        return "not yet"
    if name.kind == "attribute" and name.path in _ATTRIBUTES:
        return _ATTRIBUTES[name.path]
    text = inspect.getdoc(name.find()) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def page() -> str:
    """Return the text of docs/api.md."""
    lines = [
        "# torch.npu",
        "",
        "What each contracted name does on the virtual NPU, from its docstring,",
        "which has units and errors. Written by `python tests/api/make_docs.py`.",
    ]
    for number, title in _SECTIONS.items():
        lines += ["", f"## {title}", "", "| name | on the virtual NPU |", "|---|---|"]
        for name in NAMES:
            if name.section == number:
                parameters = f"({name.parameters})" if name.parameters else ""
                empty = "()" if name.parameters == "" else parameters
                lines.append(f"| `{name.path}{empty}` | {_says(name)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCS.write_text(page())
