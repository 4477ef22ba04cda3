"""The table of docs/internals/ranks.md: an all-reduce on more ranks than were run."""

from __future__ import annotations

from npu_dispatch.plan.topology import Group, Link

_SIZES = {4: "4 B", 1 << 20: "1 MB", 1 << 26: "64 MB"}
_RANKS = (8, 64, 512, 4096)
_PER_HOST = 8
_GIGABIT = 8e-9  # seconds for each byte


def scale(inside: Link, alpha: float) -> str:
    """Return what each algorithm takes, as Markdown.

    The ranks of a host share one link across, which has this alpha.
    """
    across = Link(alpha, _GIGABIT)
    text = "| ranks | bytes | all to all, ms | ring | tree | hierarchical |\n"
    text += "|---|---|---|---|---|---|\n"
    for ranks in _RANKS:
        group = Group(
            ranks // _PER_HOST,
            _PER_HOST,
            _PER_HOST,
            ranks,
            inside,
            alone=across,
            together=across.shared(_PER_HOST),
        )
        passes = (group.direct, group.ring_pass, group.tree_pass, group.hierarchy)
        for size, words in _SIZES.items():
            # An all-reduce is two passes.
            cells = [_shown(2e3 * one(size).seconds()) for one in passes]
            text += f"| {ranks} | {words} | {' | '.join(cells)} |\n"
    return text


def _shown(ms: float) -> str:
    """Three digits that matter, and no exponent."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"
