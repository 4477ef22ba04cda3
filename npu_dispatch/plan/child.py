"""The process in which the program runs: it records its steps, stops it in time, and
says how it would run on each device.

    python -m npu_dispatch.plan.child WHAT.pickle SCRIPT [ARGS]

WHAT.pickle is an Order; the answer is written to the file that it names.
"""

from __future__ import annotations

import pickle
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from npu_dispatch import _C, npu, program
from npu_dispatch.npu.runtime.device_error import frame_origins
from npu_dispatch.plan import values
from npu_dispatch.plan.record import Order
from npu_dispatch.plan.simulate import Recording
from npu_dispatch.plan.steps import EnoughError, Steps
from npu_dispatch.plan.study import Recorded, study

if TYPE_CHECKING:
    from npu_dispatch.plan.rank_reads import RankReads

# Of the device's memory: a program is to go on beyond it, so that one sees how far.
_MEMORY = 1e6
# What a program for other devices says here, and the option that helps.
_OTHER_NAMES = {
    "Torch not compiled with CUDA enabled": "--cuda",
    "No module named 'torch_npu'": "--torch-npu",
}


class _Program:
    """The program, and what is to be known of its run."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.steps = Steps(order)
        self.rank_reads: RankReads | None = None  # of a job
        self.notes: list[str] = []
        self.status = 0
        self.ended_by: Exception | None = None

    def run(self) -> None:
        what = sys.argv[2] if self.order.module else Path(sys.argv[2])
        self.steps.begin()
        try:
            program.execute(what, tuple(sys.argv[3:]))
        except EnoughError:
            pass
        except KeyboardInterrupt:
            self.notes.append(
                "The program was interrupted, and what it did before is planned."
            )
        except SystemExit as stop:
            code = stop.code
            self.status = code if isinstance(code, int) else int(bool(code))
        except Exception as error:
            self.ended_by = error
        self.steps.end()
        self.steps.give_up()

    def answer(self) -> list[Recorded] | str:
        """Return the reports for each device, or why there are none."""
        try:
            npu.synchronize()
        except RuntimeError as error:
            self.ended_by = self.ended_by or error
        steps, order = self.steps, self.order
        recording = Recording.of(steps.recorded, order.warmup)
        ended_by = self.ended_by
        refused = None  # why there is no graph, and at which line
        if steps.graph is not None and not steps.captured:
            refused = "the program ended before another step did", ""
            if ended_by:
                refused = (str(ended_by).splitlines() or [""])[0], _line(ended_by)
        elif ended_by:
            traceback.print_exception(ended_by)
            if not recording.step_count:
                self.status = 1
                return f"the program failed{self._why(ended_by)}"
            self.notes.append(
                f"The program failed after {steps.count} steps{self._why(ended_by)}. "
                "These steps are planned."
            )
        if not any(work["type"] != "none" for work in steps.recorded.works):
            why = "the program launched nothing on the device 'npu'"
            if resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > 0:
                why += (
                    "; it started other processes, and only the program's own work can "
                    "be planned: plan what it starts, as one rank (--ranks)"
                )
            return why
        self._note_steps(recording)
        allocated, reserved = steps.memory
        return [
            study(
                recording,
                spec,
                _C.call_line,
                why_no_graph=refused,
                captured=steps.captured,
                growth=[(size, line) for _, size, line in steps.recorded.peaks],
                host_speed=order.host_speed,
                kernels=order.kernels,
                network=order.network,
                script=sys.argv[0],
                step_is=steps.step_is if recording.step_count else "the whole run",
                peak_allocated=allocated,
                peak_reserved=reserved,
                notes=self.notes,
            )
            for spec in order.specs
        ]

    def _why(self, error: Exception) -> str:
        """Return what ended the program, in words that follow on others."""
        where = _line(error)
        said = traceback.format_exception_only(error)[-1].strip()
        why = f"{f' at {where}' if where else ''}: {said}"
        for text, option in _OTHER_NAMES.items():
            if text in str(error):
                why += f"; it is written for another device: plan it with {option}"
        if read := Recording.of(self.steps.recorded, 0).last_read(_C.call_line):
            why += (
                f"; a plan computes no values, and what {read} read from the device "
                "was zeros"
            )
        return why

    def _note_steps(self, recording: Recording) -> None:
        steps, warmup = self.steps, self.order.warmup
        if recording.step_count and recording.step_count == steps.count - 1 and warmup:
            self.notes.append(
                f"The program ended after {steps.count} steps. The first {warmup} are "
                "counted, too, though they fill caches and make state: let it run "
                "longer."
            )
        if recording.step_count and steps.graph is None:
            self.notes.append(
                "The program ended before a step was left to capture into a graph: "
                "--steps says how many come before that one."
            )
        if self.rank_reads:
            self.notes.append(self.rank_reads.note())


def _line(error: BaseException) -> str:
    """Return the program's own line that raised, or called what did."""
    libraries = tuple(folder for folder, _ in frame_origins())
    frames = traceback.extract_tb(error.__traceback__)
    # Extensions name their frames by relative paths.
    files = [f for f in frames if Path(f.filename).is_absolute()]
    own = [f for f in files if not f.filename.startswith(libraries)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _set_clocks() -> None:
    """Replace functions of `time`.

    The main thread's sleeps are a part of the host's time, and perf_counter() is the
    host's clock beside the device that is planned for.
    """
    really_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            _C.plan_pass(int(seconds * 1e9))
        really_sleep(seconds)

    time.perf_counter_ns = _C.plan_now
    time.perf_counter = lambda: _C.plan_now() / 1e9
    time.sleep = sleep  # type: ignore[assignment]


def main() -> None:
    order: Order = pickle.loads(Path(sys.argv[1]).read_bytes())
    planned = _Program(order)
    _set_clocks()
    values.install()
    for device in range(npu.device_count()):
        _C.set_per_process_memory_fraction(_MEMORY, device)
    if order.network is not None:
        # Here, since it imports torch.distributed, which most programs do not need.
        from npu_dispatch.plan import group
        from npu_dispatch.plan.rank_reads import RankReads

        planned.rank_reads = RankReads()
        group.install(order.network.ranks, per_host=order.network.topology.per_host)
    # The default stream cannot be captured, and autograd keeps to the streams of
    # the first step.
    npu.set_stream(npu.Stream())
    planned.run()
    order.out.write_bytes(pickle.dumps(planned.answer()))
    sys.stdout.flush()
    sys.exit(planned.status)


if __name__ == "__main__":
    main()
