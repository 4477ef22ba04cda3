"""The process in which the program runs: it records its steps, stops it in time, and
says how it would run on each device.

    python -m npu_dispatch.plan.child WHAT.pickle SCRIPT [ARGS]

WHAT.pickle is an Order; the Answer is written to the file that it names.
"""

from __future__ import annotations

import gc
import pickle
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from npu_dispatch import _C, npu, program
from npu_dispatch.plan.captured import CapturedStep
from npu_dispatch.plan.network.ranks import Network
from npu_dispatch.plan.order import Answer, Order
from npu_dispatch.plan.recording import Recording
from npu_dispatch.plan.study import Memory, Subject, study

_MOST_STEPS = 1000
# Of the device's memory: a program is to go on beyond it, so that one sees how far.
_MEMORY = 1e6
_MOST_ENTRIES = 2_000_000
# What a program for other devices says here, and the option that helps.
_OTHER_NAMES = {
    "Torch not compiled with CUDA enabled": "--cuda",
    "No module named 'torch_npu'": "--torch-npu",
}


class _EnoughError(BaseException):
    """The steps that were asked for are done. Programs are not to catch this."""


class _Seen:
    """The steps of the program, as they end."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.count = 0
        self.begun = 0
        self.step_is = ""
        self.optimizer: Any = None
        self.hook: Any = register_module_forward_pre_hook(self.calls)
        self.recorded: Any = None
        self.memory = (0, 0)
        self.step: Any = None  # the one after those that are counted
        self.captured = False
        self.interrupted = False

    def stepped(self, optimizer: Any, *_: object) -> None:
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
            self.end_step()

    def calls(self, module: Any, _: object) -> None:
        """Let each call of this module be a step, in a program without optimizer."""
        if torch.compiler.is_compiling():  # the call is part of another's
            return
        self.hook.remove()
        # By type: isinstance() would ask objects that are proxies of others.
        if not any(issubclass(type(o), Optimizer) for o in gc.get_objects()):
            self.step_is = f"a call of {type(module).__name__}"
            self.hook = module.register_forward_hook(lambda *_: self.end_step())

    def end_step(self) -> None:
        if self.step is not None:
            self.step.end()
            self.captured = True
            raise _EnoughError
        _C.plan_step()
        now = time.process_time_ns()  # the same number of steps beside others
        self.count += 1
        if self.count <= self.order.warmup + 1:
            self.begun = now
        enough = self.count >= self.order.steps
        enough = enough and now - self.begun >= self.order.least_ns
        if enough or self.count >= _MOST_STEPS or _C.plan_size() >= _MOST_ENTRIES:
            self.end()
            self.step = CapturedStep()

    def begin(self) -> None:
        """Begin the recording. The program sees the time of the first device."""
        self.recorded = None
        sheet = self.order.sheets[0]
        _C.plan_start(sheet.driver_text(), self.order.host_speed)

    def end(self) -> None:
        """End the recording, which what follows is no part of."""
        if self.recorded is None:
            self.recorded = _C.plan_stop()
            self.memory = npu.max_memory_allocated(), npu.max_memory_reserved()


class _Clock:
    """What the program gets instead of functions of `time`.

    The main thread's sleeps are a part of the host's time, and perf_counter() is the
    host's clock beside the device that is planned for.
    """

    def __init__(self) -> None:
        self.really_sleep = time.sleep

    def install(self) -> None:
        time.perf_counter_ns = _C.plan_now
        time.perf_counter = lambda: _C.plan_now() / 1e9
        time.sleep = self.sleep  # type: ignore[assignment]

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            _C.plan_pass(int(seconds * 1e9))
        self.really_sleep(seconds)


def main() -> None:
    order: Order = pickle.loads(Path(sys.argv[1]).read_bytes())
    seen = _Seen(order)
    register_optimizer_step_post_hook(seen.stepped)
    _Clock().install()
    for device in range(npu.device_count()):
        _C.set_per_process_memory_fraction(_MEMORY, device)
    if order.network is not None:
        _join(order.network)
    # The default stream cannot be captured, and autograd keeps to the streams of
    # the first step.
    npu.set_stream(npu.Stream())
    seen.begin()
    what = sys.argv[2] if order.module else Path(sys.argv[2])
    status, failure, ended_by = _run(what, tuple(sys.argv[3:]), seen)
    seen.end()
    why_no_graph = None
    if seen.step is not None and not seen.captured:
        why_no_graph = seen.step.give_up(ended_by)
    if not failure:
        try:
            npu.synchronize()
        except RuntimeError as error:
            status, failure = 1, str(error)
    answer = Answer(failure)
    if not failure:
        answer = _answer(order, seen, why_no_graph)
    Path(order.out).write_bytes(pickle.dumps(answer))
    sys.stdout.flush()
    sys.exit(status)


def _join(network: Network) -> None:
    """Let the program be rank 0 of a job."""
    # Here, since it imports torch.distributed, which most programs do not need.
    from npu_dispatch.plan.job import group

    group.install(network.ranks, per_host=network.topology.per_host)


def _run(
    what: str | Path, args: tuple[str, ...], seen: _Seen
) -> tuple[int, str, BaseException | None]:
    """Return the program's status, why it cannot be planned, and what ended it."""
    try:
        program.execute(what, args)
    except _EnoughError:
        return 0, "", None
    except KeyboardInterrupt:
        seen.interrupted = True
        return 0, "", None
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        return status, "", None
    except Exception as error:
        if seen.step is not None:
            return 0, "", error
        traceback.print_exception(error)
        failure = f"the program failed: {type(error).__name__}: {error}"
        for said, option in _OTHER_NAMES.items():
            if said in str(error):
                failure += f"; it is written for another device: plan it with {option}"
        return 1, failure, error
    return 0, "", None


def _answer(order: Order, seen: _Seen, why_no_graph: tuple[str, str] | None) -> Answer:
    if not any(work["type"] != "none" for work in seen.recorded.works):
        started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > 0
        others = (
            "; it started other processes, and only the program's own work can be "
            "planned: plan what it starts, as one rank (--ranks)"
        )
        return Answer(
            "the program launched nothing on the device 'npu'"
            f"{others if started else ''}"
        )
    recording = Recording.of(seen.recorded, order.warmup)
    subject = Subject(
        script=sys.argv[0],
        step_is=seen.step_is if recording.step_count else "the whole run",
        memory=Memory(
            *seen.memory, [(size, line) for _, size, line in seen.recorded.peaks]
        ),
        captured=seen.captured,
        why_no_graph=why_no_graph,
        host_speed=order.host_speed,
        notes=_notes(seen, recording, order.warmup),
    )
    return Answer(
        "",
        [
            study(recording, subject, sheet, _C.call_line, order.kernels, order.network)
            for sheet in order.sheets
        ],
    )


def _notes(seen: _Seen, recording: Recording, warmup: int) -> list[str]:
    """Return what is to be known of the figures, in sentences."""
    notes = []
    if seen.interrupted:
        notes.append("The program was interrupted, and what it did before is planned.")
    if recording.step_count and recording.step_count == seen.count - 1 and warmup:
        notes.append(
            f"The program ended after {seen.count} steps. The first {warmup} are "
            "counted, too, though they fill caches and make state: let it run longer."
        )
    if recording.step_count and seen.step is None:
        notes.append(
            "The program ended before a step was left to capture into a graph: "
            "--steps says how many come before that one."
        )
    return notes


if __name__ == "__main__":
    main()
