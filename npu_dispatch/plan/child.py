"""The process in which the program runs, which counts its steps and stops it in time.

    python -m npu_dispatch.plan.child WHAT.json SCRIPT [ARGS]

WHAT.json says how many steps, whether SCRIPT is a module, and where to write
what was seen.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from npu_dispatch import _C, npu, program
from npu_dispatch.plan.captured import CapturedStep

_MOST_STEPS = 1000
# What a program for other devices says here, and the option that helps.
_OTHER_NAMES = {
    "Torch not compiled with CUDA enabled": "--cuda",
    "No module named 'torch_npu'": "--torch-npu",
}


class _EnoughError(BaseException):
    """The steps that were asked for are done. Programs are not to catch this."""


class _Seen:
    """`steps`: how many, and so many more that they take `least_ns`."""

    def __init__(self, steps: int, least_ns: int) -> None:
        self.steps = steps
        self.least_ns = least_ns
        self.boundaries: list[int] = []
        self.waits: list[tuple[str, str, int, int]] = []
        self.step_is = ""
        self.optimizer: Any = None
        self.hook: Any = register_module_forward_pre_hook(self.calls)
        self.captured: Any = None  # the step after those that are counted
        self.graph: dict[str, Any] | None = None

    def stepped(self, optimizer: Any, *_: object) -> None:
        # Where there are several optimizers, the first one says what a step is.
        if self.optimizer is None:
            self.optimizer = optimizer
            self.step_is = f"a step of {type(optimizer).__name__}"
            self.hook.remove()
            self.boundaries.clear()
        if optimizer is self.optimizer:
            self.count()

    def calls(self, module: Any, _: object) -> None:
        """Let each call of this module be a step, in a program without optimizer."""
        if torch.is_grad_enabled():
            return
        self.hook.remove()
        # By type: isinstance() would ask objects that are proxies of others.
        if not any(issubclass(type(o), Optimizer) for o in gc.get_objects()):
            self.step_is = f"a call of {type(module).__name__}"
            self.hook = module.register_forward_hook(lambda *_: self.count())

    def count(self) -> None:
        if self.captured is not None:
            self.graph = self.captured.measure()
            raise _EnoughError
        self.boundaries.append(time.monotonic_ns())
        took = self.boundaries[-1] - self.boundaries[0]
        n = len(self.boundaries)
        if n >= _MOST_STEPS or (n >= self.steps and took >= self.least_ns):
            self.captured = CapturedStep()

    def waited(
        self, reason: str, _op: str, _device: int, _stream: int, _n: int, ns: int
    ) -> None:
        if not ns:
            return
        now = time.monotonic_ns()
        line = _C.call_line(_C.current_call_site())
        self.waits.append((reason, line, now - ns, now))


def main() -> None:
    what = json.loads(Path(sys.argv[1]).read_text())
    seen = _Seen(what["steps"], what["least_ns"])
    register_optimizer_step_post_hook(seen.stepped)
    _C.set_sync_watchers(lambda *_: None, seen.waited)
    _C.watch_syncs(True)
    script = sys.argv[2]
    status = 0
    failure = ""
    ended_by: BaseException | None = None
    # The default stream cannot be captured, and autograd keeps to the streams of
    # the first step.
    npu.set_stream(npu.Stream())
    begun = time.monotonic_ns()
    try:
        program.execute(script if what["module"] else Path(script), tuple(sys.argv[3:]))
    except _EnoughError:
        pass
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except Exception as error:
        ended_by = error
    if seen.captured is not None:
        if seen.graph is None:
            seen.graph = seen.captured.give_up(ended_by)
    elif isinstance(ended_by, torch.OutOfMemoryError):
        status, failure = 1, f"out of memory: {ended_by}"
    elif ended_by is not None:
        traceback.print_exception(ended_by)
        name = type(ended_by).__name__
        status, failure = 1, f"the program failed: {name}: {ended_by}"
        for said, option in _OTHER_NAMES.items():
            if said in str(ended_by):
                failure += f"; it is written for another device: plan it with {option}"
    _C.watch_syncs(False)
    ended = time.monotonic_ns()
    try:
        npu.synchronize()
    except RuntimeError as error:
        status, failure = 1, str(error)
    Path(what["out"]).write_text(
        json.dumps(
            {
                "failure": failure,
                "begun": begun,
                "ended": ended,
                "step_is": seen.step_is,
                "boundaries": seen.boundaries,
                "waits": seen.waits,
                "graph": seen.graph,
                "allocated": npu.max_memory_allocated(),
                "reserved": npu.max_memory_reserved(),
            }
        )
    )
    sys.stdout.flush()
    sys.exit(status)


if __name__ == "__main__":
    main()
