"""Run a program, and say how it would run on devices of given specs, without torch."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_dispatch.config import for_child, own_python
from npu_dispatch.plan.kernel_times import KernelTimes
from npu_dispatch.plan.spec import Spec
from npu_dispatch.plan.study import Network, Recorded

__all__ = ["Order", "PlanError", "record"]


class PlanError(RuntimeError):
    """The program did not come far enough for a plan."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the process is asked in which the program runs.

    It answers with what was recorded for each spec, or why there is no plan. The
    program ends after `steps` of them, or 10 and as many more as take 0.8 s of this
    machine's CPUs: a few short steps would tell more about chance than about it.
    """

    specs: Sequence[Spec]
    out: Path  # the file for the answer
    steps: int | None = None
    warmup: int = 3  # steps before those
    module: bool = False
    host_speed: float = 1.0  # of the host that is meant, divided by this one's
    kernels: KernelTimes | None = None  # measured times, which go before the specs'
    network: Network | None = None  # of the job that the program is a rank of


@contextlib.contextmanager
def _interrupts_are_the_programs() -> Iterator[None]:
    """Leave Ctrl-C to the program, which it ends: what it did so far is planned.

    The terminal sends it to both. Another thread's caller has no say in signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # A function and not SIG_IGN, which the program would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def record(
    command: Sequence[str], specs: Sequence[Spec], **options: Any
) -> list[Recorded]:
    """Return what SCRIPT [ARGS] does on each device; the options are Order's.

    It runs once, on a device that takes no time and has as much memory as it asks for.
    """
    with tempfile.TemporaryDirectory(prefix="npu_plan-") as name:
        what, out = Path(name, "what.pickle"), Path(name, "out.pickle")
        order = Order(list(specs), out, **options)
        what.write_bytes(pickle.dumps(order))
        largest = max(specs, key=lambda spec: spec.memory)
        with _interrupts_are_the_programs():
            done = subprocess.run(
                own_python("-m", "npu_dispatch.plan.child", str(what), *command),
                env=for_child(
                    NPU_DRIVER="emulated", NPU_EMULATED=largest.recording_text()
                ),
                stdout=sys.stderr,
                check=False,
            )
        if not out.is_file():
            raise PlanError(
                f"the program ended with status {done.returncode} before there was "
                "anything to plan with; its own output says why"
            )
        answer: list[Recorded] | str = pickle.loads(out.read_bytes())
    if isinstance(answer, str):
        raise PlanError(answer)
    return answer
