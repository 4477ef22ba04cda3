"""A training step as a callable: the plain loop's body, or a graph of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import statistics
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from npu_dispatch import _C, npu
from npu_dispatch.whole_step import depends
from npu_dispatch.whole_step.optimizer import OnDevice
from npu_dispatch.whole_step.reasons import sentence_of, warn
from npu_dispatch.whole_step.training import Function, Training

_log = logging.getLogger(__name__)

# What graphs depend on may change so often, and once more for so many replays.
_CHANGES, _REPLAYS = 4, 10
# The backends of which the faster one is taken, and the replays of each that are timed.
_BACKENDS, _TIMED = ("inductor", "eager"), 5
_SOMETIMES = "a parameter gets gradients from some batches only, and they accumulate"
# Guards are for all that a graph has as constants: hooks, and each value of a number.
_FOR_CONSTANTS: dict[str, Any] = {
    "specialize_int": True,
    "specialize_float": True,
    "skip_nnmodule_hook_guards": False,
    "side_effect_replay_policy": "error",
    "allow_rnn": True,
}


class _RefusedError(Exception):
    """The step does something that a replay would not do."""


class _CompiledError(Exception):
    """Raised in place of running what has just been compiled."""


def _tensors(leaves: Sequence[Any]) -> list[Tensor]:
    return [x for x in leaves if isinstance(x, Tensor)]


def _each_once(tensors: Sequence[Tensor], make: Function) -> list[Tensor]:
    """Return make(tensor) for each; the same result where a tensor comes again."""
    made = {id(t): make(t) for t in tensors}
    return [made[id(t)] for t in tensors]


def _with_tensors(leaves: Sequence[Any], spec: Any, tensors: Sequence[Tensor]) -> Any:
    """Return the positional and the keyword arguments, with other tensors."""
    others = iter(tensors)
    leaves = [next(others) if isinstance(x, Tensor) else x for x in leaves]
    return (leaves, {}) if spec is None else pytree.tree_unflatten(leaves, spec)


def _key(leaves: Sequence[Any], spec: Any, last: bool) -> Any:
    """Return what the calls of one graph have in common."""
    autocast = torch.is_autocast_enabled("npu") and torch.get_autocast_dtype("npu")
    structure = None if spec is None else depends.exact_spec(spec)
    ids = [id(x) for x in leaves if isinstance(x, Tensor)]
    # A model may ask whether two arguments are one tensor.
    same = len(ids) == len(set(ids)) or tuple(map(ids.index, ids))
    return (last, autocast, same, structure, *map(depends.exact, leaves))


@dataclasses.dataclass
class _Captured:
    """A graph of a step, and what its replays need."""

    backend: Any
    graph: npu.NPUGraph
    unchanged: Callable[[], bool]  # asks about the constants of the graph
    inputs: Sequence[Tensor]
    results: Sequence[Any]
    spec: Any
    timed: list[tuple[npu.Event, npu.Event]] = dataclasses.field(default_factory=list)

    def milliseconds(self) -> float | None:
        """Return the median time of the timed replays, if all have ended."""
        if len(self.timed) < _TIMED or not all(end.query() for _, end in self.timed):
            return None
        return statistics.median(start.elapsed_time(end) for start, end in self.timed)


@dataclasses.dataclass
class _Program:
    """What is kept for one kind of batch."""

    kept: Any  # the objects that its key names
    settled: bool = False  # it has run, and may be captured
    disturbed: str = ""  # what a replay would leave as it is
    # By backend, while the faster one is looked for; the one to replay next is first.
    captured: list[_Captured] = dataclasses.field(default_factory=list)

    def changed(self) -> str:
        if not all(captured.unchanged() for captured in self.captured):
            return "what the model reads in Python"
        return self.disturbed


class CompiledStep:
    """What npu_dispatch.compile_step() returns; call it with a batch.

    `captures` and `replays` count those. `backend` is the backend of new graphs; None
    while the faster one is looked for. `reason` is None, or the sentence of the warning
    once steps run as the plain loop.
    """

    def __init__(self, training: Training, **how: Any) -> None:
        self.captures = self.replays = 0
        self.reason: str | None = None
        self._training = training
        self.backend: Any = how.pop("backend")
        if self.backend is None and torch.are_deterministic_algorithms_enabled():
            self.backend = _BACKENDS[0]  # a choice by time may differ the next time
        self._backends: Sequence[Any] = [self.backend] if self.backend else _BACKENDS
        self._how = how  # of torch.compile
        self._device = training.parameters[0].device
        self._phase = 0  # which batch of an accumulating step is next
        self._programs: dict[Any, _Program] = {}
        self._pool = npu.graph_pool_handle()
        self._stream = npu.current_stream(self._device)
        self._watched: depends.Watched | None = None
        self._changes = 0
        self._stepped = self._reported = False
        self._optimizer = OnDevice(training.optimizer, self._device)
        self._sums: dict[Tensor, Tensor] = {}  # gradients, if a step accumulates
        # The tensors that were compiled in, by id: how Dynamo's code finds them.
        self._reads: dict[int, str] = {}
        self._forwards: dict[Any, Any] = {}  # by backend

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take a step with a batch; return what loss_fn returned, detached.

        The results are new tensors; an object whose class pytree does not know is what
        loss_fn made. Gradients are gone afterwards.
        """
        if not torch.is_grad_enabled():
            raise RuntimeError(
                "a compiled step computes gradients, but was called under "
                "torch.no_grad() or inference_mode(); call it outside"
            )
        if _C.current_device() != self._device.index:
            with npu.device(self._device.index):
                return self(*args, **kwargs)
        training, spec = self._training, None
        leaves: Sequence[Any] = args
        last = self._phase == training.accumulate - 1
        if kwargs or not all(type(a) is Tensor for a in args):
            leaves, spec = pytree.tree_flatten((args, kwargs))  # takes 20 us
        program = None
        if self.reason is None and not npu.is_current_stream_capturing():
            try:
                program = self._program(leaves, spec, last)
            except Exception as error:
                self._give_up(error)
        if program is None:
            result = self._run(leaves, spec, last, training.step)
        elif not program.captured:
            result = self._warm_up(program, leaves, spec, last)
        else:
            result = self._replay(self._next(program), leaves, last)
        self._phase = 0 if last else self._phase + 1
        if last and training.scheduler is not None:
            training.scheduler.step()
        return result

    def _program(self, leaves: Any, spec: Any, last: bool) -> _Program:
        """Return what is kept for such calls, anew where something has changed."""
        key = _key(leaves, spec, last)
        if hooks := depends.hooks(self._training.optimizer):
            raise _RefusedError(hooks)
        known, changed = self._programs.get(key), "everything"
        if self._watched is not None:
            changed = self._watched.difference()
            if not changed and known and (changed := known.changed()):
                self._forwards.clear()  # Dynamo keeps what it has compiled
        if changed:
            _log.info("compile_step: drops its graphs, since %s is new", changed)
            self._changes += 1
            if self._changes > _CHANGES + self.replays // _REPLAYS:
                raise _RefusedError(
                    f"graphs depend on {changed}, which changes every few calls"
                )
            self._watch()
        program = self._programs.get(key)
        if program is None:
            if any(t.requires_grad or t.is_inference() for t in _tensors(leaves)):
                raise _RefusedError(
                    "an input requires a gradient or is of inference mode"
                )
            others = [x for x in leaves if not isinstance(x, Tensor)]
            program = _Program([spec, *others])
            most = self._training.max_graphs
            if len(self._programs) < most:
                self._programs[key] = program
            elif not self._reported:
                self._reported = True
                warn(
                    f"compile_step keeps {most} graphs, and steps of further shapes "
                    "run without one: pad the inputs, or raise max_graphs"
                )
        self._optimizer.refresh()
        if _C.current_stream(self._device.index) != self._stream.stream_id:
            before, self._stream = self._stream, npu.current_stream(self._device)
            self._stream.wait_stream(before)  # since graphs share memory
        if program.settled and self._stepped:
            self._gather()
            if not program.captured:
                self._capture_each(program, leaves, spec, last)
        return program

    def _watch(self) -> None:
        """Drop all graphs, and remember what new ones will depend on."""
        self._programs.clear()
        self._sums.clear()
        self._stepped = False
        self._optimizer.prepare()
        rates = bool(self._optimizer.rates)
        self._watched = depends.Watched(self._training, ignores_rates=rates)
        if name := self._watched.hooked():
            raise _RefusedError(f"a hook of {name} is Python code")

    def _next(self, program: _Program) -> _Captured:
        """Return the graph to replay; choose one of several once they are timed."""
        captured = program.captured
        if len(captured) == 1:
            return captured[0]
        times = [(ms, c) for c in captured if (ms := c.milliseconds()) is not None]
        if len(times) < len(captured):
            captured.append(captured.pop(0))
            return captured[-1]
        _, fastest = min(times, key=lambda time: time[0])
        self.backend, self._backends = fastest.backend, [fastest.backend]
        self._forwards = {self.backend: self._forwards[self.backend]}
        program.captured = [fastest]
        told = ", ".join(f"{c.backend} {ms:.3f} ms" for ms, c in times)
        _log.info("compile_step: takes backend %s (%s)", self.backend, told)
        return fastest

    def _replay(self, captured: _Captured, leaves: Any, last: bool) -> Any:
        self.replays += 1
        for static, given in zip(captured.inputs, _tensors(leaves), strict=True):
            static.copy_(given)
        if self.backend is None and len(captured.timed) < _TIMED:
            start, end = (npu.Event(enable_timing=True) for _ in range(2))
            start.record()
            captured.graph.replay()
            end.record()
            captured.timed.append((start, end))
        else:
            captured.graph.replay()
        if last:
            depends.count_step(self._training.optimizer)
            if self._sums:
                self._training.zero_grad()
        own = [r.clone() if isinstance(r, Tensor) else r for r in captured.results]
        return pytree.tree_unflatten(own, captured.spec)

    def _run(self, leaves: Any, spec: Any, last: bool, step: Function) -> Any:
        """Do what the plain loop does."""
        training = self._training
        moved = _each_once(_tensors(leaves), lambda t: t.to(self._device))
        args, kwargs = _with_tensors(leaves, spec, moved)
        if self._phase == 0:
            training.zero_grad()
        loss, result = training.forward(args, kwargs)
        training.backward(loss)
        if last:
            training.clip()
            step()
            training.zero_grad()
        return pytree.tree_map_only(Tensor, Tensor.detach, result)

    def _warm_up(self, program: _Program, leaves: Any, spec: Any, last: bool) -> Any:
        """Do the same with the optimizer on the device, which makes its state there."""
        drawn, versions = depends.host_draws(), [t._version for t in _tensors(leaves)]
        result = self._run(leaves, spec, last, self._step)
        if drawn != depends.host_draws():
            program.disturbed = "the state of the host's random numbers"
        elif versions != [t._version for t in _tensors(leaves)]:
            program.disturbed = "the data of an input"
        self._stepped = self._stepped or last
        program.settled = True
        if kind := depends.unknown_in(result):
            text = f"the result has a {kind}, in which tensors cannot be found: return "
            text += "a tensor, tuple, list or dict, or register it with pytree"
            self._give_up(_RefusedError(text))
        return result

    def _step(self) -> None:
        """Take the optimizer's step in a graph's form, or plainly where that raises."""
        training = self._training
        if training.accumulate > 1 and not self._sums:
            self._sums = {p: torch.zeros_like(g) for p, g in training.grads().items()}
        versions = self._optimizer.versions()
        try:
            with self._optimizer.in_place():
                training.step()
        except Exception as error:
            if self._optimizer.versions() != versions:
                raise
            self._give_up(error)
            training.step()

    def _gather(self) -> None:
        """Let gradients of accumulating steps add up where graphs have them."""
        grads = self._training.grads() if self._sums else {}
        if not grads.keys() <= self._sums.keys():
            raise _RefusedError(_SOMETIMES)
        for p, total in self._sums.items():
            if p not in grads:
                total.zero_()
            elif grads[p] is not total:
                total.copy_(grads[p])
            p.grad = total

    def _capture_each(
        self, program: _Program, leaves: Any, spec: Any, last: bool
    ) -> None:
        """Capture with each backend; with the first while another program compares."""
        choosing = any(len(p.captured) > 1 for p in self._programs.values())
        for backend in self._backends[:1] if choosing else self._backends:
            try:
                program.captured.append(self._capture(backend, leaves, spec, last))
            except Exception as error:
                # What stops Dynamo, or is refused, stops each backend.
                stops_all = not isinstance(
                    error, torch._dynamo.exc.BackendCompilerFailed
                )
                is_last = backend == self._backends[-1]
                if not program.captured and (stops_all or is_last):
                    raise
                sentence = sentence_of(error)
                _log.info("compile_step: goes on without %s: %s", backend, sentence)
        if not choosing and len(program.captured) == 1:
            self.backend = program.captured[0].backend
            self._backends = [self.backend]
        self.captures += 1

    def _capture(self, backend: Any, leaves: Any, spec: Any, last: bool) -> _Captured:
        training, sums, device = self._training, self._sums, self._device
        inputs = _each_once(
            _tensors(leaves), lambda t: torch.empty_like(t, device=device)
        )
        args, kwargs = _with_tensors(leaves, spec, inputs)
        if not sums:
            training.zero_grad()
        self._reads.clear()
        forward = self._forwards.get(backend) or self._compile(backend)
        graph, limit = npu.NPUGraph(), max(8, 2 * training.max_graphs)
        versions = {p: total._version for p, total in sums.items()}
        try:
            with (
                self._optimizer.in_place(),
                torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
                torch._dynamo.config.patch(recompile_limit=limit, **_FOR_CONSTANTS),
            ):
                with (
                    depends.all_ways_compared(),
                    contextlib.suppress(_CompiledError),
                ):
                    forward(args, kwargs)
                # Other threads may wait for their own work.
                with npu.graph(graph, self._pool, capture_error_mode="thread_local"):
                    loss, result = forward(args, kwargs)
                    training.backward(loss)
                    grads = training.grads().items()
                    new = {p for p, g in grads if versions.get(p) != g._version}
                    if training.accumulate > 1 and new != sums.keys():
                        raise _RefusedError(_SOMETIMES)
                    if last:
                        training.clip()
                        training.step()
        finally:
            for p in training.parameters:
                p.grad = sums.get(p)
            if training.scaler is not None:
                training.scaler._per_optimizer_states.clear()
        assert self._watched is not None
        given = set(map(id, inputs))
        reads = {one: at for one, at in self._reads.items() if one not in given}
        for one in reads.keys() - self._watched.known:
            raise _RefusedError(
                f"the model reads {reads[one]}, a tensor that is no argument and "
                "no parameter, buffer or attribute of a module"
            )
        unchanged = self._guards(forward, args, kwargs, reads)
        result = pytree.tree_map_only(Tensor, Tensor.detach, result)
        results, spec = pytree.tree_flatten(result)
        return _Captured(backend, graph, unchanged, inputs, results, spec)

    def _compile(self, chosen: Any) -> Any:
        """Tell Dynamo what is to be compiled, which imports Dynamo."""
        training, how, reads = self._training, self._how, self._reads
        wrap: Any = torch._TorchCompileInductorWrapper
        if chosen != "inductor":
            wrap = functools.partial(torch._TorchCompileWrapper, chosen)
        # One of two backends that are tried: the options are for the compiler.
        options = how["options"] if self.backend or chosen == "inductor" else None
        compiler = wrap(None, options, how["dynamic"])

        def forward(args: Any, kwargs: Any) -> Any:
            return training.forward(args, kwargs)

        def backend(graph: Any, inputs: Any) -> Function:
            nodes = graph.graph.find_nodes(op="placeholder")
            for x, node in zip(inputs, nodes, strict=True):
                if isinstance(x, Tensor):
                    reads[id(x)] = node.meta["grapharg"].source.name
            compiled = compiler(graph, inputs)

            def run(*given: Any) -> Any:
                if not npu.is_current_stream_capturing():
                    raise _CompiledError
                return compiled(*given)

            return run

        # Dynamo counts by code objects.
        forward.__code__ = forward.__code__.replace()
        self._forwards[chosen] = torch.compile(
            forward, fullgraph=True, dynamic=how["dynamic"], backend=backend
        )
        return self._forwards[chosen]

    def _guards(
        self, forward: Any, args: Any, kwargs: Any, reads: dict[int, str]
    ) -> Callable[[], bool]:
        """Return the check that the compiled code holds for these arguments.

        Dynamo's own guards know which numbers in lists and objects the code has as
        constants, but not whether a tensor is the same object.
        """
        scope = {"args": args, "kwargs": kwargs, "training": self._training}
        code = forward._torchdynamo_orig_callable.__code__
        for entry in torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code):
            check = entry.guard_manager.check
            if check(scope):
                places = depends.Places(reads, {"L": scope, "G": forward.__globals__})
                if places.unchanged():
                    return lambda: check(scope) and places.unchanged()
        raise _RefusedError("Dynamo's guards do not hold for what was captured")

    def _give_up(self, error: Exception) -> None:
        """Run the plain loop from now on."""
        self.reason = sentence_of(error)
        # These hold the backward graph, which holds the streams of gradients.
        traceback.clear_frames(error.__traceback__)
        self._programs.clear()
        self._sums.clear()
        self._watched = None
        self._forwards.clear()
        self._optimizer.move_counts(torch.device("cpu"))
        warn(f"compile_step runs eagerly from now on: {self.reason}")
