"""The process in which the program runs: counts its steps, and stops it in time.

    python -m npu_dispatch.plan.child WHAT.json SCRIPT [ARGS]

WHAT.json says how many steps, whether SCRIPT is a module, and where to write
what was seen.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any


class _EnoughError(BaseException):
    """The steps that were asked for are done. No program's `except` is meant."""


class _Seen:
    def __init__(self, steps: int) -> None:
        self.most = steps
        self.boundaries: list[int] = []
        self.waits: list[tuple[str, str, int, int]] = []
        self.optimizer: Any = None

    def stepped(self, optimizer: Any, *_: object) -> None:
        # Of several optimizers the first one says what a step is.
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer:
            return
        self.boundaries.append(time.monotonic_ns())
        if len(self.boundaries) >= self.most:
            raise _EnoughError

    def waited(
        self, reason: str, _op: str, _device: int, _stream: int, _n: int, ns: int
    ) -> None:
        if not ns:
            return
        from npu_dispatch import _C

        now = time.monotonic_ns()
        line = _C.call_line(_C.current_call_site())
        self.waits.append((reason, line, now - ns, now))


def main() -> None:
    what = json.loads(Path(sys.argv[1]).read_text())
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from npu_dispatch import _C, npu, program

    seen = _Seen(what["steps"])
    register_optimizer_step_post_hook(seen.stepped)
    _C.set_sync_watchers(lambda *_: None, seen.waited)
    _C.watch_syncs(True)
    script = sys.argv[2]
    status = 0
    failure = ""
    npu.init()
    begun = time.monotonic_ns()
    try:
        program.execute(script if what["module"] else Path(script), tuple(sys.argv[3:]))
    except _EnoughError:
        pass
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except torch.OutOfMemoryError as error:
        status, failure = 1, f"out of memory: {error}"
    except Exception as error:
        traceback.print_exc()
        status, failure = 1, f"the program failed: {type(error).__name__}: {error}"
    _C.watch_syncs(False)
    ended = time.monotonic_ns()
    try:
        npu.synchronize()
    except RuntimeError as error:
        status, failure = 1, str(error)
    Path(what["out"]).write_text(
        json.dumps(
            {
                "status": status,
                "failure": failure,
                "begun": begun,
                "ended": ended,
                "boundaries": seen.boundaries,
                "waits": seen.waits,
                "totals": _C.emulated_totals(),
                "allocated": npu.max_memory_allocated(),
                "reserved": npu.max_memory_reserved(),
            }
        )
    )
    sys.stdout.flush()
    sys.exit(status)


if __name__ == "__main__":
    main()
