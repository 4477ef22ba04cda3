"""Runs a program on one device and notes what can be seen after each step.

A program is a list of Python statements over variables t0, t1, ... and the names
that `Machine` provides. `D` is the device, so that the same text runs on cpu.
"""

import contextlib
import functools
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.differential import tables
from tests.differential.observe import Error, Reader, Values, error_of, look
from tests.differential.tables import DTYPES
from tests.differential.words import Words, reset_all, set_plan_limit, wait_for_all

STREAMS = 3
# Tensors; what the host has; large ones; those of the second device; pinned ones;
# those of a graph; ends of ranges. Steps of one kind know which may be large.
VARIABLES = "thbeprx"
# A kernel may only fail on the device for what it cannot know before: values.
DEVICE_ERROR = torch.AcceleratorError


class LateError(Exception):
    """A task failed after its call: the program must be run step by step."""


@dataclass
class Seen:
    """What a step left behind: its exception, and each variable's looks."""

    step: str
    error: Error | None
    looks: dict[str, Any]


@dataclass
class Trace:
    """A program's run."""

    seen: list[Seen] = field(default_factory=list)
    values: dict[str, Values] = field(default_factory=dict)
    # The first step whose error came from the device, after the call.
    late: int | None = None


@functools.cache
def compiled(step: str) -> Any:
    return compile(step, step, "exec")


class _Finalizer:
    """Calls a function when it is given up, as weakref.finalize does."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __del__(self) -> None:
        # What is raised here has no place in a program.
        with contextlib.suppress(Exception):
            self._call()


class Machine:
    """One device, with what programs may name."""

    def __init__(self, device: str, *, step_by_step: bool = False) -> None:
        self.device = device
        self.trace = Trace()
        self._step_by_step = step_by_step
        # With the threads that entered them.
        self._pushed: list[tuple[int, Any]] = []
        # Of one thread each, which lives as long as this, since switches are a
        # thread's; by their numbers, and by the threads.
        self._workers: dict[int, ThreadPoolExecutor] = {}
        self._worker_of: dict[int, ThreadPoolExecutor] = {}
        self._littered = False
        self._streams: list[Any] = []
        # Entered around what a step runs, in whichever thread.
        self.watch: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.names: dict[str, Any] = {
            "torch": torch,
            "F": torch.nn.functional,
            "D": device,
            "default_dtype": default_dtype,
            "deterministic": deterministic,
            "finalizer": _Finalizer,
            **DTYPES,
        }
        for name in (
            *("data", "host", "strided", "grown", "push", "pop"),
            *("on", "in_thread", "at_once", "litter"),
        ):
            self.names[name] = getattr(self, name)
        self.words = Words(device)
        self.names |= self.words.names()

    # What programs call.

    def host(self, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Any:
        """Return a tensor on the host."""
        return tables.small(shape, dtype, seed).clone().view(shape)

    def data(self, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Any:
        """Return a contiguous tensor of the seed's numbers."""
        flat = tables.small(shape, dtype, seed)
        return flat.to(self.device, copy=True).view(shape)

    def strided(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> Any:
        """Return an empty_strided tensor; gaps are 0 and elements 1."""
        made = torch.empty_strided(shape, strides, dtype=dtype, device=self.device)
        with torch.no_grad():
            self._bytes(made, 0).zero_()
        return made.fill_(1)

    def grown(self, t: torch.Tensor, *shape: int, **options: Any) -> Any:
        """Resize a tensor; memory it did not have before becomes 0."""
        old = t.untyped_storage().nbytes()
        try:
            t.resize_(shape, **options)
        finally:  # It may fail in the middle.
            with torch.no_grad():
                self._bytes(t, old).zero_()
        return t

    def _bytes(self, t: torch.Tensor, start: int) -> torch.Tensor:
        storage = t.untyped_storage()
        size = max(storage.nbytes() - start, 0)
        raw = torch.empty(0, dtype=torch.uint8, device=self.device)
        return raw.set_(storage, start if size else 0, (size,))

    def push(self, context: Any) -> None:
        """Enter a context of the calling thread until pop() or the end."""
        context.__enter__()
        self._pushed.append((threading.get_ident(), context))

    def pop(self) -> None:
        """Leave the last context that this thread entered, if any."""
        mine = threading.get_ident()
        for i in reversed(range(len(self._pushed))):
            if self._pushed[i][0] == mine:
                self._pushed.pop(i)[1].__exit__(None, None, None)
                return

    @contextlib.contextmanager
    def on(self, stream: int, how: str = "event") -> Iterator[None]:
        """Launch on another stream, after what came before and before what follows."""
        if self.device != "npu":
            yield
            return
        while len(self._streams) < STREAMS:
            self._streams.append(torch.npu.Stream())
        other = self._streams[stream]
        outer = torch.npu.current_stream()
        _wait(other, outer, how)
        with torch.npu.stream(other):
            try:
                yield
            finally:
                _wait(outer, other, how)

    def in_thread(self, number: int, step: str) -> None:
        """Run a step in another thread and wait for it."""
        self._worker(number).submit(self._execute, step).result()

    def at_once(self, x: torch.Tensor, *formulas: str, times: int = 3) -> Any:
        """Work out formulas of x, each in a thread and on a stream of its own."""
        copies = [x.detach().clone() for _ in formulas]
        results: list[Any] = [None] * len(formulas)
        if self.device == "npu":
            torch.npu.synchronize()

        def branch(number: int) -> None:
            with self.watch(), self.on(number, "synchronize"):
                for _ in range(times):
                    names = {"x": copies[number], "torch": torch}
                    results[number] = eval(formulas[number], names)

        done = [self._worker(10 + i).submit(branch, i) for i in range(len(formulas))]
        wait(done)
        for one in done:
            one.result()
        return tuple(results)

    def litter(self, n: int) -> None:
        """Leave cyclic garbage whose finalizers launch, wherever it is collected."""
        if not self._littered:
            self._littered = True
            gc.set_threshold(30)
        for i in range(n):
            cycle: list[Any] = [
                _Finalizer(functools.partial(_launch_something, self.device, i))
            ]
            cycle.append(cycle)

    def _worker(self, number: int) -> ThreadPoolExecutor:
        if number not in self._workers:
            worker = self._workers[number] = ThreadPoolExecutor(1)
            self._worker_of[worker.submit(threading.get_ident).result()] = worker
        return self._workers[number]

    # Running.

    def run(self, step: str) -> Seen:
        before = None
        if self._step_by_step:
            # Not finalizers: their names must be all that keeps them.
            before = {n: self.names[n] for n in self.variables() if n[0] != "h"}
        error = None
        try:
            self._execute(step)
        except Exception as raised:
            error = self._note(raised)
            del raised
        if before is not None and self.device == "npu":
            late = self._wait_for_errors()
            if late is not None:
                error = late
                if self.trace.late is None:
                    self.trace.late = len(self.trace.seen)
                for name in self.variables():
                    if name[0] != "h" and name not in before:
                        del self.names[name]
                self.names.update(before)
        looks = look({name: self.names[name] for name in self.variables()})
        seen = Seen(step, error, looks)
        self.trace.seen.append(seen)
        return seen

    def _execute(self, step: str) -> None:
        with self.watch():
            exec(compiled(step), self.names)

    def variables(self) -> list[str]:
        return [n for n in self.names if n[0] in VARIABLES and n[1:].isdigit()]

    def _note(self, raised: Exception) -> Error | None:
        if isinstance(raised, DEVICE_ERROR) and not self._step_by_step:
            raise LateError from None
        if isinstance(raised, DEVICE_ERROR):
            return None  # Found again by the wait.
        return error_of(raised)

    def _wait_for_errors(self) -> Error | None:
        try:
            wait_for_all()
        except DEVICE_ERROR as raised:
            reset_all()
            return error_of(raised)
        return None

    def finish(self) -> Trace:
        """Leave every context and read every variable."""
        self._leave()
        try:
            if self.device == "npu":
                wait_for_all()
            reader = Reader()
            for name in self.variables():
                self.trace.values[name] = reader.values(self.names[name])
        except DEVICE_ERROR:
            raise LateError from None
        return self.trace

    def close(self) -> None:
        """Give up all variables and threads."""
        self._leave()
        # Where two threads left theirs in another order than they had entered
        # them, a switch of the whole process is what the first one had set.
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch._C._set_mkldnn_enabled(True)
        set_plan_limit(None)
        self.names.clear()
        self.words.close()
        self._worker_of.clear()
        while self._workers:
            self._workers.popitem()[1].shutdown()
        if self._littered:
            gc.collect()
            gc.set_threshold(*THRESHOLD)

    def _leave(self) -> None:
        """Leave all contexts, the last one first: some switch the whole process."""
        while self._pushed:
            if worker := self._worker_of.get(self._pushed[-1][0]):
                worker.submit(self.pop).result()
            else:
                self.pop()


THRESHOLD = gc.get_threshold()


def _launch_something(device: str, n: int) -> None:
    x = torch.arange(3 + n % 5, device=device, dtype=torch.float32)
    (x[1:] * 2).unsqueeze(0).softmax(-1).add_(1)
    torch.nn.functional.layer_norm(x, x.shape)


def _wait(waiting: Any, other: Any, how: str) -> None:
    """Order all that `waiting` is given from now on after all of `other`'s."""
    if how == "synchronize":
        other.synchronize()
    elif how == "stream":
        waiting.wait_stream(other)
    else:
        event = torch.npu.Event()
        event.record(other)
        event.wait(waiting)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic(fill: bool = True, warn_only: bool = True) -> Iterator[None]:
    """Most only warn: that an operator has no such mode is a device's own matter."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = before


def run(program: list[str], device: str) -> Trace:
    """Run a program; again, step by step, where a task failed after its call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step_by_step in (False, True):
            machine = Machine(device, step_by_step=step_by_step)
            try:
                for step in program:
                    machine.run(step)
                return machine.finish()
            except LateError:
                reset_all()
            finally:
                machine.close()
    raise AssertionError("a task failed though each step was waited for")
