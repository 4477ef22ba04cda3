"""Which lines of functions given to torch.compile run eagerly instead.

npu_dispatch/cli/compiled.py adds what Dynamo itself notes. Inductor's caches hold no
lines, so its graphs are not kept meanwhile.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

_MOST_COMPILES = 10_000  # Dynamo keeps 64
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')

Place = tuple[str, int, str]  # file, line, function
NOWHERE: Place = ("", 0, "")
notes: Counter[tuple[Place, str, str]] | None = None


def start() -> None:
    """Note from now on what becomes of compiled functions."""
    global notes

    import torch._functorch.config
    import torch._inductor.config
    from torch._dynamo.utils import set_compilation_metrics_limit

    notes = Counter()
    set_compilation_metrics_limit(_MOST_COMPILES)
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False


def note_operator(node: Any) -> None:
    """Note that a graph launches an operator which Inductor has no code for."""
    if notes is None:
        return
    traces = (origin.meta.get("stack_trace") for origin in node.get_origins())
    text = next(filter(None, traces), "")
    places = [(file, int(line), name) for file, line, name in _FRAME.findall(text)]
    about = f"{node.op_overload} is launched as it is in eager code"
    notes[users_place(places), "fell back", about] += 1


def note_without_graph(why: str) -> None:
    """Note that a call of a `reduce-overhead` function replays nothing."""
    if notes is None:
        return
    frames: Iterator[tuple[FrameType, int]] = traceback.walk_stack(None)
    stack = [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in frames]
    notes[users_place(reversed(stack)), "fell back", f"no graph, where {why}"] += 1


def users_place(places: Iterable[Place]) -> Place:
    """Return the innermost place, outermost first, that is not in torch or here."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folders = Path(torch.__file__).parent, Path(__file__).parents[1], cache_dir()
    others = tuple(f"{folder}/" for folder in folders)
    own = [at for at in places if at[0][:1] != "<" and not at[0].startswith(others)]
    return own[-1] if own else NOWHERE
