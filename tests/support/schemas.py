"""What somebody else's types make of a file of ours."""

from typing import Any


def lost(given: Any, kept: Any, at: str = "") -> list[str]:
    """Return what of `given` is not, or not the same, in `kept`."""
    if isinstance(given, dict) and isinstance(kept, dict):
        both = [(f"{at}.{name}", given[name], kept.get(name)) for name in given]
    elif isinstance(given, list) and isinstance(kept, list):
        if len(given) != len(kept):
            return [at]
        pairs = zip(given, kept, strict=True)
        both = [(f"{at}[{i}]", *two) for i, two in enumerate(pairs)]
    else:
        return [] if given == kept else [at]
    return [where for place, one, other in both for where in lost(one, other, place)]
