"""The steps of a program, as they end: each is recorded, and one is captured."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from npu_dispatch import _C, npu
from npu_dispatch.plan.record import Order

__all__ = ["EnoughError", "Steps"]

_USUAL_STEPS, _LEAST_NS = 10, 800_000_000
_MOST_STEPS = 1000
_MOST_ENTRIES = 2_000_000


class EnoughError(BaseException):
    """The steps that were asked for are done. Programs are not to catch this."""


class Steps:
    """Counts the program's steps, and raises EnoughError at the end of the last one."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.count = 0
        self.begun = 0
        self.step_is = ""
        self.optimizer: Any = None
        self.hook: Any = register_module_forward_pre_hook(self._called)
        self.recorded: Any = None
        self.memory = (0, 0)
        self.graph: Any = None  # of the step after those that are counted
        self.captured = False
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *_: object) -> None:
        # Where there are several optimizers, the first one says what a step is.
        if self.optimizer is None:
            self.optimizer = optimizer
            self.step_is = f"a step of {type(optimizer).__name__}"
            self.hook.remove()
            if self.count:  # calls of a model, before there was an optimizer
                self.count = 0
                self.end()
                self.begin()
        if optimizer is self.optimizer:
            self._end_step()

    def _called(self, module: Any, _: object) -> None:
        """Let each call of this module be a step, in a program without optimizer."""
        if torch.compiler.is_compiling():  # the call is part of another's
            return
        self.hook.remove()
        # By type: isinstance() would ask objects that are proxies of others.
        if not any(issubclass(type(o), Optimizer) for o in gc.get_objects()):
            self.step_is = f"a call of {type(module).__name__}"
            self.hook = module.register_forward_hook(lambda *_: self._end_step())

    def _end_step(self) -> None:
        if self.graph is not None:
            self.graph.capture_end()  # raises where the step broke it
            self.captured = True
            raise EnoughError
        _C.plan_step()
        now = time.process_time_ns()  # the same number of steps beside others
        self.count += 1
        if self.count <= self.order.warmup + 1:
            self.begun = now
        steps = self.order.steps
        enough = self.count > (steps or _USUAL_STEPS) + self.order.warmup
        enough = enough and (bool(steps) or now - self.begun >= _LEAST_NS)
        if enough or self.count >= _MOST_STEPS or _C.plan_size() >= _MOST_ENTRIES:
            self.end()
            # NPUGraph refuses an optimizer that counts its steps on the host, because
            # that count would stand still in replays. This graph is not replayed.
            graph = _C.Graph()
            npu.synchronize()
            graph.capture_begin(0, "relaxed", False)
            self.graph = graph

    def begin(self) -> None:
        """Begin the recording. The program sees the time of the first device."""
        self.recorded = None
        _C.plan_start(self.order.specs[0].driver_text(), self.order.host_speed)

    def end(self) -> None:
        """End the recording, which what follows is no part of."""
        if self.recorded is None:
            self.recorded = _C.plan_stop()
            self.memory = npu.max_memory_allocated(), npu.max_memory_reserved()

    def give_up(self) -> None:
        """End a capture that the program did not come to the end of."""
        if self.graph is not None and not self.captured:
            with contextlib.suppress(RuntimeError):  # the capture is broken already
                self.graph.capture_end()
