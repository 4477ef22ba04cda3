"""The metrics that docs/metrics.md lists."""

import re
from itertools import cycle
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def described(*, per_stream: bool = False) -> dict[str, tuple[str, set[str]]]:
    """Return the kind and the labels of each metric by its name."""
    text = PAGE.read_text().partition("## Alerts")[0]
    rows = [line.split("|")[1:4] for line in text.splitlines() if line[:3] == "| `"]
    metrics = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    found = {}
    for names, form, meaning in rows:
        kinds, marks = re.findall(r"\w{2,}", form), re.findall(r"\b\w\b", form)
        if "p" in marks and not per_stream:
            continue
        # A line is only shown where it is known.
        labels = set(re.findall(r"`(\w+)`", meaning)) - metrics - {"line"}
        if not meaning.startswith((" of the process", " of the service")):
            labels.add("device")
            if "s" in marks or (per_stream and kinds == ["histogram"]):
                labels.add("stream")
        for name, kind in zip(re.findall(r"`(\w+)`", names), cycle(kinds)):
            found[name] = kind, labels
    return found
