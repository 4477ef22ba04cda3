"""torch.npu.graphs: work captured once and replayed at the speed of its kernels.

Mirrors torch.cuda.graphs, for inference and training. While a graph is
captured, what the stream is given goes into the graph instead of running;
memory comes from a pool of the graph's own.
"""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from npu_dispatch import _C
from npu_dispatch.npu.graphs import records
from npu_dispatch.npu.memory import empty_cache
from npu_dispatch.npu.runtime import own_names
from npu_dispatch.npu.runtime.devices import current_device, synchronize
from npu_dispatch.npu.runtime.start import _lazy_init, is_initialized
from npu_dispatch.npu.streams import Stream, StreamContext, current_stream

PoolHandle = tuple[int, int]


def is_current_stream_capturing() -> bool:
    """Return whether the current stream's work goes into a graph now."""
    return is_initialized() and _C.is_capturing()


def graph_pool_handle() -> PoolHandle:
    """Return a name for a memory pool that several graphs may share.

    Graphs that share a pool must be replayed in the order of their captures, and
    never at the same time, because each may use memory that an earlier one freed.
    """
    return (0, _C.new_graph_pool())


def _pool_number(pool: PoolHandle | None) -> int:
    match pool:
        case None:
            return 0
        case (0, int(number)) if number > 0:
            return number
    raise RuntimeError(
        f"pool must come from graph_pool_handle() or NPUGraph.pool(), got {pool!r}"
    )


def _check_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if NPUGraph.get_currently_capturing_graph() is None:
        return
    # Fused ones keep the count on the device in any case.
    if all(
        group.get("capturable", True) or group.get("fused")
        for group in optimizer.param_groups
    ):
        return
    either = "fused=True, which is faster, or " if "fused" in optimizer.defaults else ""
    raise RuntimeError(
        f"step() of {type(optimizer).__name__} is not allowed while a graph is "
        "captured: it counts its steps on the host, where a replay does not come; "
        f"construct it with {either}capturable=True"
    )


class NPUGraph(_C.Graph):
    """Work of one capture, on all the streams that took part in it.

    `keep_graph` changes nothing: torch.cuda.CUDAGraph needs it to be dumped or
    instantiated after the capture, and here every graph can be. Methods raise
    RuntimeError for anything that a capture does not allow, and where there is
    nothing to replay. Only one thread may use a graph at a time.
    """

    # Not the owner: a capture ends with the last one.
    _capturing: ClassVar[weakref.ref[NPUGraph] | None] = None
    _step_hook: ClassVar[RemovableHandle | None] = None
    _records: records.Recorder | None = None
    _update_stream: Stream | None = None

    def __init__(self, keep_graph: bool = False) -> None:
        if not _C.device_count():
            raise RuntimeError("No NPU devices are available")
        super().__init__()

    def capture_begin(  # type: ignore[override]
        self,
        pool: PoolHandle | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = True,
    ) -> None:
        """Begin to capture the current stream, which must not be the default one.

        `pool` shares the memory of other graphs. `capture_error_mode` says who may
        not wait for the device meanwhile: with "global" no thread may, with
        "thread_local" this thread may not, and with "relaxed" only waits for captured
        work are refused. With `check_input_liveness`, which costs a replay nothing
        here, replay() raises RuntimeError where a tensor that the graph uses and does
        not own has been freed. Where it is an argument of a task group, the replay
        fails when it reaches the group.

        A capture that nobody ends is given up: where the graph is freed, where the
        thread that began it ends (not with "relaxed"), and at the end of the program.
        """
        _lazy_init()
        super().capture_begin(
            _pool_number(pool), capture_error_mode, check_input_liveness
        )
        NPUGraph._capturing = weakref.ref(self)
        if NPUGraph._step_hook is None:
            NPUGraph._step_hook = register_optimizer_step_pre_hook(_check_optimizer)

    def capture_end(self) -> None:
        """End the capture, on the stream it began on.

        Raises RuntimeError when a stream that joined the capture was not joined back.
        The capture is then over, and the graph is empty.
        """
        try:
            super().capture_end()
        finally:
            self._let_optimizers_step()

    @staticmethod
    def _let_optimizers_step() -> None:
        hook = NPUGraph._step_hook
        if hook is not None and NPUGraph.get_currently_capturing_graph() is None:
            NPUGraph._step_hook = None
            hook.remove()

    def replay(self) -> None:
        """Queue the captured work on the current stream and return at once.

        The stream is the current one of the graph's device, whichever device is
        current. Random operators continue the generator's sequence.
        """
        super().replay()

    def reset(self) -> None:
        """Free the graph and its memory as soon as no queued replay uses them.

        A capture that is under way is given up. The object can then capture again.
        """
        super().reset()
        self._let_optimizers_step()

    def pool(self) -> PoolHandle:  # type: ignore[override]
        """Return the handle of the graph's memory; RuntimeError before a capture."""
        return (0, super().pool())

    def update(self, cpu_update_input: list[dict[str, Any]]) -> None:
        """Give captured operators other numbers, by argument name.

        The graph must be captured with `auto_dispatch_capture`. Then each captured
        operator that takes numbers is a record. A single dict goes to every record
        that has all of its names; otherwise the list has one dict, which may be
        empty, per record. Replays on the current stream use the new numbers from now
        on. Raises RuntimeError for a list of another length, a name that fits
        nowhere, or a value that would change a shape.
        """
        if self._records is None:
            raise RuntimeError(
                "update() needs a capture with "
                "torch.npu.graph(g, auto_dispatch_capture=True)"
            )
        stream = self._update_stream or self._stream_for_updates(self._records)
        self._update_stream = stream
        for record, numbers in self._records.select(cpu_update_input):
            _C.begin_task_update(*_stream(stream), self, record.group)
            try:
                with StreamContext(stream):
                    record.call_with(numbers)
            finally:
                _C.end_task_update(*_stream(stream))
        current_stream(self.device()).wait_stream(stream)

    def _stream_for_updates(self, recorder: records.Recorder) -> Stream:
        """Return a stream that captured no record; streams of a pool come round."""
        captured = {record.stream for record in recorder.records}
        while True:
            stream = Stream(self.device())
            if _stream(stream) not in captured:
                return stream

    def enable_debug_mode(self) -> None:
        """Do nothing, as every graph can be dumped."""

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Do nothing, as a capture finds the generators that it uses."""

    def instantiate(self) -> None:
        """Do nothing, as a graph is ready for replay when its capture ends."""

    def debug_dump(self, path: str | Path) -> None:
        """Write what was captured in Graphviz's language, as torch.cuda does.

        nodes() returns the same, and more, as Python's data.
        """
        Path(path).write_text(records.dot(self.nodes()))

    @staticmethod
    def get_currently_capturing_graph() -> NPUGraph | None:
        """Return the graph whose capture is under way, or None."""
        found = NPUGraph._capturing() if NPUGraph._capturing is not None else None
        return found if found is not None and found.capturing() else None


class graph:
    """A context in which the current thread's work is captured into a graph.

    It waits for the device, gives unused memory back, and moves to a stream of its
    own on the current device (or to `stream`). The capture ends with the context, also
    after an exception. `capture_error_mode` and `check_input_liveness`: as
    NPUGraph.capture_begin() has them. `enable_annotations` changes nothing: the nodes
    of every graph name their lines. With `auto_dispatch_capture`, NPUGraph.update()
    can change numbers later.
    """

    _capture_streams: ClassVar[dict[int, Stream]] = {}  # by device

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = True,
        *,
        auto_dispatch_capture: bool = False,
    ) -> None:
        _lazy_init()
        if stream is None:
            stream = graph.capture_stream_of(current_device())
        self.npu_graph = npu_graph
        self.pool = pool
        self.capture_stream = stream
        self.stream_ctx = StreamContext(stream)
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        self._recorder = records.Recorder() if auto_dispatch_capture else None

    @staticmethod
    def capture_stream_of(device: int) -> Stream:
        """Return the stream on which captures of the device run by default."""
        streams = graph._capture_streams
        if device not in streams:
            streams[device] = Stream(device)
        return streams[device]

    def __enter__(self) -> None:
        synchronize(self.capture_stream.device)
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.npu_graph.capture_begin(
                self.pool, self.capture_error_mode, self.check_input_liveness
            )
            self.npu_graph._records = self._recorder
            if self._recorder is not None:
                self._recorder.__enter__()  # type: ignore[no-untyped-call]
        except BaseException:  # Ctrl-C may come behind capture_begin()
            if self.npu_graph.capturing():
                self.npu_graph.reset()
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._recorder is not None:
                self._recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            # The body may have left another stream current.
            self.stream_ctx.__exit__()
            with StreamContext(self.capture_stream):
                self.npu_graph.capture_end()
        except (RuntimeError, MemoryError):
            if error is None:
                raise
            # The error that ended the body says more.
        finally:  # Ctrl-C may come before capture_end()
            if self.npu_graph.capturing():
                self.npu_graph.reset()


class TaskGroupHandle(NamedTuple):
    """Captured tasks whose arguments may be replaced."""

    task_group: _C.TaskGroup
    graph: NPUGraph


def _stream(stream: Any) -> tuple[int, int]:
    if not isinstance(stream, torch.Stream) or stream.device.type != "npu":
        raise RuntimeError(f"expected a torch.npu.Stream, got {stream!r}")
    return stream.device_index, stream.stream_id


def graph_task_group_begin(stream: torch.Stream) -> None:
    """Begin a group of tasks of the capturing `stream` whose arguments may change.

    Raises RuntimeError when `stream` does not capture, or has a group under way.
    """
    _C.begin_task_group(*_stream(stream))


def graph_task_group_end(stream: torch.Stream) -> TaskGroupHandle:
    """End the group and return it. RuntimeError when no task was captured in it."""
    group = _C.end_task_group(*_stream(stream))
    if group is None:
        raise RuntimeError(
            "graph_task_group_end(): no task was captured since "
            "graph_task_group_begin()"
        )
    capturing = NPUGraph.get_currently_capturing_graph()
    if capturing is None:
        raise RuntimeError("task groups need a capture of a torch.npu.NPUGraph")
    return TaskGroupHandle(group, capturing)


def graph_task_update_begin(stream: torch.Stream, handle: TaskGroupHandle) -> None:
    """Begin to collect new arguments for a group's tasks, on another stream.

    After this, call the group's operators again, in the same order and on tensors of
    the same shapes. They do not run, and what they return is never filled, because
    results stay where the capture put them. Raises RuntimeError when `stream`
    captures, or when the group was captured on it.
    """
    if not isinstance(handle, TaskGroupHandle):
        raise RuntimeError(
            f"handle must come from graph_task_group_end(), got {handle!r}"
        )
    _C.begin_task_update(*_stream(stream), handle.graph, handle.task_group)


def graph_task_update_end(stream: torch.Stream) -> None:
    """Put the arguments into the group once `stream` comes to this point.

    A replay that reaches the group after that uses all of the new arguments, and an
    earlier one uses none. Raises RuntimeError, and changes nothing, when the
    operators were not those of the group.
    """
    _C.end_task_update(*_stream(stream))


__all__ = own_names(globals())
