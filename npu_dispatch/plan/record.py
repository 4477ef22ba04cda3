"""Run a program, and say how it would run on devices of stated speed, without torch."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from npu_dispatch.config import for_child
from npu_dispatch.own_python import own_python
from npu_dispatch.plan.kernels.times import KernelTimes
from npu_dispatch.plan.network.ranks import Network
from npu_dispatch.plan.order import Answer, Order
from npu_dispatch.plan.sheet import Sheet
from npu_dispatch.plan.study import Recorded

__all__ = ["PlanError", "record"]

_STEPS, _LEAST_NS = 10, 800_000_000


class PlanError(RuntimeError):
    """The program did not come far enough for a plan."""


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
    command: Sequence[str],
    sheets: Sequence[Sheet],
    *,
    module: bool = False,
    steps: int | None = None,
    warmup: int = 3,
    host_speed: float = 1.0,
    kernels: KernelTimes | None = None,
    network: Network | None = None,
) -> list[Recorded]:
    """Return what SCRIPT [ARGS] does on each device: its last `steps` steps.

    With None it is 10 steps, and as many more as take 0.8 s of this machine's CPUs: a
    few short steps would tell more about chance than about the program. It runs once,
    on a device that takes no time and has as much memory as it asks for.

    `kernels` are times that were measured on the device; they go before the sheets'.
    `host_speed` is the speed of the host that is meant, divided by this one's.
    With a `network` the program is one rank of a job that has no others.
    """
    with tempfile.TemporaryDirectory(prefix="npu_plan-") as name:
        what, out = Path(name, "what.pickle"), Path(name, "out.pickle")
        order = Order(
            sheets=list(sheets),
            steps=(steps or _STEPS) + warmup + 1,
            least_ns=0 if steps else _LEAST_NS,
            warmup=warmup,
            module=module,
            host_speed=host_speed,
            kernels=kernels,
            network=network,
            out=str(out),
        )
        what.write_bytes(pickle.dumps(order))
        largest = max(sheets, key=lambda sheet: sheet.numbers["memory"]["gib"])
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
        answer: Answer = pickle.loads(out.read_bytes())
    if answer.failure:
        raise PlanError(answer.failure)
    return answer.recorded
