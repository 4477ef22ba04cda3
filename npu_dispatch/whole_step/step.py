"""A training step as a callable: the plain loop, its compiled form, or a replay."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from npu_dispatch import _C, npu
from npu_dispatch.whole_step.exact import exact, exact_spec
from npu_dispatch.whole_step.hooks import count_step, uncaptured
from npu_dispatch.whole_step.program import (
    Program,
    host_randomness,
    like,
    own_code,
)
from npu_dispatch.whole_step.rates import Rates
from npu_dispatch.whole_step.refusal import RefusedError, sentence_of
from npu_dispatch.whole_step.training import Function, Training
from npu_dispatch.whole_step.watched import Watched, tensors_in

__all__ = ["CompiledStep"]

_log = logging.getLogger(__name__)

# How many calls of one shape come before its capture. In these the optimizer makes
# its state, and modules fill their caches.
_WARM_UPS = 4
# The program may change what graphs depend on so many times in a row, each time
# after fewer than so many replays.
_RESTARTS, _FEW_REPLAYS = 8, 10
# So often may a capture find no memory.
_MOST_OUT_OF_MEMORY = 3


class CompiledStep:
    """What npu_dispatch.compile_step() returns; call it with a batch.

    `captures` and `replays` count those. `reason` is None, or the sentence of the
    warning once steps run eagerly.
    """

    def __init__(
        self,
        training: Training,
        device: torch.device,
        *,
        scheduler: Any = None,
        backend: str | Function = "inductor",
        dynamic: bool | None = None,
        options: dict[str, Any] | None = None,
        max_graphs: int = 16,
    ) -> None:
        self.captures = 0
        self.replays = 0
        self.reason: str | None = None
        self._training = training
        self._device = device
        self._scheduler = scheduler
        self._max_graphs = max_graphs
        self._phase = 0  # which batch of an accumulating step is next
        self._programs: dict[Any, Program] = {}
        self._pool = npu.graph_pool_handle()
        self._stream: int | None = None
        self._watched: Watched | None = None
        self._restarts = self._out_of_memory = 0
        # The optimizer steps behind the replay, since its numbers change each time.
        self._steps_behind = False
        self._replays_before = 0
        self._reported = False
        self._rates = Rates(training.optimizer, device)
        self._taken = training.scaler is None or self._rates.fused
        self._modules = [training.model]
        if isinstance(training.loss_fn, nn.Module):
            self._modules.append(training.loss_fn)

        self._how: dict[str, Any] = {"backend": backend, "options": options}
        self._dynamic = dynamic
        self._forward: Function | None = None
        self._code: types.CodeType | None = None
        self._clip_and_step: Function = training.clip_and_step

    def __repr__(self) -> str:
        how = (
            f"eager: {self.reason}" if self.reason else f"{len(self._programs)} shapes"
        )
        return (
            f"CompiledStep({type(self._training.model).__name__}, {how}, "
            f"captures={self.captures}, replays={self.replays})"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take a step with a batch; return what loss_fn returned, detached.

        The results are new tensors. Gradients are gone afterwards.
        """
        if not torch.is_grad_enabled():
            raise RuntimeError(
                "a compiled step computes gradients, but was called under "
                "torch.no_grad() or inference_mode(); call it outside"
            )
        if _C.current_device() != self._device.index:
            with npu.device(self._device.index):
                return self(*args, **kwargs)
        last = self._phase == self._training.accumulate - 1
        leaves, spec = self._flat(args, kwargs)
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if self.reason is not None or npu.is_current_stream_capturing():
            result = self._plain(leaves, spec, last)
        else:
            result = self._captured(leaves, spec, tensors, last)
        self._phase = 0 if last else self._phase + 1
        if last and self._scheduler is not None:
            self._scheduler.step()
        return result

    @staticmethod
    def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if not kwargs and all(type(a) is Tensor for a in args):
            return args, None
        return pytree.tree_flatten((args, kwargs))

    @staticmethod
    def _unflat(leaves: Any, spec: Any) -> tuple[Any, Any]:
        return (leaves, {}) if spec is None else pytree.tree_unflatten(leaves, spec)

    def _key(self, leaves: Any, spec: Any, last: bool) -> Any:
        return (
            last,
            None if spec is None else exact_spec(spec),
            torch.is_autocast_enabled("npu") and torch.get_autocast_dtype("npu"),
            *(
                (x.shape, x.stride(), x.dtype, x.requires_grad)
                if isinstance(x, Tensor)
                else exact(x)
                for x in leaves
            ),
        )

    def _captured(
        self, leaves: Any, spec: Any, tensors: list[Tensor], last: bool
    ) -> Any:
        try:
            key = self._key(leaves, spec, last)
        except TypeError as error:
            return self._fall_back(error, leaves, spec, last)
        if hooks := uncaptured(self._training.optimizer):
            self._give_up(hooks)
            return self._plain(leaves, spec, last)
        program = self._programs.get(key)
        changed = self._difference(program)
        if changed:
            self._start_over(changed)
            if self.reason is not None:
                return self._plain(leaves, spec, last)
            program = None
        if program is None:
            program = Program()
            if len(self._programs) < self._max_graphs:
                self._programs[key] = program
            else:
                self._report_full()
        self._rates.refresh()
        self._order_streams()
        if program.graph is None:
            if not program.settled:
                return self._warm_up(program, leaves, spec, tensors, last)
            try:
                self._capture(program, leaves, spec, tensors, last)
            except Exception as error:
                return self._fall_back(error, leaves, spec, last)
        if self._training.accumulate > 1 and not self._training.accumulates():
            self._training.begin()
        self.replays += 1
        result = program.replay(tensors)
        if last and self._steps_behind:
            self._step_behind(program)
        elif last:
            count_step(self._training.optimizer)
        return result

    def _difference(self, program: Program | None) -> str:
        """Say what has changed of the Python state that graphs depend on."""
        if self._watched is None:
            return "everything"
        if not self._watched.intact():
            return self._watched.difference()
        if program is None or program.graph is None or program.unchanged():
            return ""
        return "what the model reads in Python"

    def _start_over(self, changed: str) -> None:
        """Give up all graphs: the Python state that they depend on has changed."""
        if self._watched is not None:
            few = self.replays - self._replays_before < _FEW_REPLAYS
            self._restarts = self._restarts + 1 if few else 0
            self._replays_before = self.replays
            _log.info("compile_step: captures anew, as %s has changed", changed)
            if self._restarts > 1 and self._watched.hyperparameter_changed():
                self._steps_behind = True
                self._clip_and_step = self._training.clip_and_step
            if self._restarts > _RESTARTS:
                self._give_up(f"{changed} changes at each few calls, with new captures")
                return
        self._programs.clear()
        self._rates.prepare()
        self._watched = self._watch()

    def _watch(self) -> Watched:
        ignored = {"_per_optimizer_states"}
        if self._rates.on_device:
            ignored.add("lr")
        return Watched(
            self._modules,
            self._training.optimizer,
            self._training.scaler,
            ignored,
            hyperparameters=not self._steps_behind,
        )

    def _order_streams(self) -> None:
        """Let this call wait for the last call's stream, since graphs share memory."""
        now = _C.current_stream(self._device.index)
        if now != self._stream:
            if self._stream is not None:
                last = npu.Stream(
                    stream_id=self._stream, device_index=self._device.index
                )
                npu.current_stream().wait_stream(last)
            self._stream = now

    def _on_device(self, leaves: Any) -> list[Any]:
        return [x.to(self._device) if isinstance(x, Tensor) else x for x in leaves]

    def _plain(self, leaves: Any, spec: Any, last: bool) -> Any:
        training = self._training
        args, kwargs = self._unflat(self._on_device(leaves), spec)
        training.begin()
        loss, result = training.forward(args, kwargs)
        training.backward(loss)
        training.keep()
        if last:
            training.update()
            training.end()
        return pytree.tree_map_only(Tensor, Tensor.detach, result)

    @contextlib.contextmanager
    def _as_compiled(self) -> Iterator[None]:
        with (
            self._rates.in_place(),
            torch._dynamo.config.patch(
                side_effect_replay_policy="error",
                skip_nnmodule_hook_guards=False,
                recompile_limit=max(8, 2 * self._max_graphs),
            ),
        ):
            yield

    def _make_functions(self) -> Function:
        """Tell Dynamo what is to be compiled, which imports Dynamo."""
        training, how = self._training, self._how

        def forward(args: Any, kwargs: Any) -> Any:
            return training.forward(args, kwargs)

        def clip_and_step() -> None:
            training.clip_and_step()

        rates = self._rates
        if (
            how["backend"] == "inductor"
            and rates.on_device
            and not rates.fused
            and not self._steps_behind
        ):
            self._clip_and_step = torch.compile(
                own_code(clip_and_step), dynamic=False, **how
            )
        own = own_code(forward)
        self._code = own.__code__
        made: Function = torch.compile(
            own, fullgraph=True, dynamic=self._dynamic, **how
        )
        return made

    def _guards(self, args: Any, kwargs: Any) -> Callable[[], bool]:
        """Return Dynamo's own check that its compiled code holds, for these arguments.

        It knows which numbers in lists and objects the code has as constants.
        """
        assert self._code is not None
        scope = {"args": args, "kwargs": kwargs, "training": self._training}
        for entry in torch._C._dynamo.eval_frame._debug_get_cache_entry_list(
            self._code
        ):
            if entry.guard_manager.check(scope):
                return functools.partial(entry.guard_manager.check, scope)
        raise RefusedError("Dynamo's guards do not hold for the code that was captured")

    def _compiled(self, args: Any, kwargs: Any, update: bool) -> Any:
        """Take a step by compiled code, before or during a capture."""
        training = self._training
        training.begin()
        if self._forward is None:
            self._forward = self._make_functions()
        loss, result = self._forward(args, kwargs)
        training.backward(loss)
        training.keep()
        if update:
            self._update()
        return pytree.tree_map_only(Tensor, Tensor.detach, result)

    def _update(self) -> None:
        if self._taken:
            self._training.update_on_device(self._take)
        else:
            self._taken = self._training.update()
        self._training.end()

    def _step_behind(self, program: Program) -> None:
        self._training.begin()
        for p, gradient in program.gradients:
            p.grad = gradient
        with self._rates.in_place():
            self._update()

    def _take(self) -> None:
        """Clip gradients and step, by compiled code where it can be compiled."""
        plain = self._training.clip_and_step
        try:
            self._clip_and_step()
        except Exception as error:
            if self._clip_and_step == plain:
                raise
            _log.info("compile_step: the optimizer is not compiled: %s", error)
            self._clip_and_step = plain
            plain()

    def _warm_up(
        self,
        program: Program,
        leaves: Any,
        spec: Any,
        tensors: list[Tensor],
        last: bool,
    ) -> Any:
        training, before = self._training, self._watched
        assert before is not None and before.intact()
        taken, drawn = self._taken, host_randomness()
        versions = [t._version for t in tensors]
        state = training.changed_by_forward()
        saved = [t.detach().clone() for t in state]
        generator = npu.get_rng_state(self._device)
        try:
            self._check(leaves, tensors)
            args, kwargs = self._unflat(self._on_device(leaves), spec)
            with self._as_compiled():
                result = self._compiled(args, kwargs, last)
        except Exception as error:
            with torch.no_grad():
                for now, then in zip(state, saved, strict=True):
                    now.copy_(then)
            npu.set_rng_state(generator, self._device)
            return self._fall_back(error, leaves, spec, last)
        changed = ""
        if not before.intact():
            changed = f"the step changes {before.difference()}"
        elif drawn != host_randomness():
            changed = "the step draws random numbers on the host"
        elif versions != [t._version for t in tensors]:
            changed = "the step changes its inputs"
        elif not taken and last:
            changed = "gradients are infinite"
        program.settled = not changed
        program.warm_ups += 1
        if not before.intact():
            self._watched = self._watch()
        if changed and taken and program.warm_ups == _WARM_UPS:
            self._give_up(f"{changed}, which a replay would not do")
        return result

    def _check(self, leaves: Any, tensors: list[Tensor]) -> None:
        """Refuse a step in which a replay would leave something out."""
        assert self._watched is not None
        if name := self._watched.hooked():
            raise RefusedError(f"a hook of {name} is Python code")
        if any(t.requires_grad for t in tensors):
            raise RefusedError("an input requires a gradient")
        for leaf in leaves:
            if tensors_in("", leaf):
                raise RefusedError(
                    f"an argument of type {type(leaf).__name__} has tensors in its "
                    "attributes, which later calls may replace"
                )

    def _capture(
        self,
        program: Program,
        leaves: Any,
        spec: Any,
        tensors: list[Tensor],
        last: bool,
    ) -> None:
        program.inputs = [like(t, self._device) for t in tensors]
        static = iter(program.inputs)
        args, kwargs = self._unflat(
            [next(static) if isinstance(x, Tensor) else x for x in leaves], spec
        )
        graph = npu.NPUGraph()
        with (
            self._as_compiled(),
            # Other threads may wait for their own work, and Watched sees what has
            # changed of the inputs.
            npu.graph(
                graph,
                pool=self._pool,
                capture_error_mode="thread_local",
                check_input_liveness=False,
            ),
        ):
            result = self._compiled(args, kwargs, last and not self._steps_behind)
        if last and self._steps_behind and self._training.accumulate == 1:
            parameters = self._training.parameters
            program.gradients = [(p, p.grad) for p in parameters if p.grad is not None]
            self._training.forget()
        program.unchanged = self._guards(args, kwargs)
        self.captures += 1
        program.results, program.spec = pytree.tree_flatten(result)
        if program.spec.is_leaf():
            program.spec = None
        program.graph = graph
        _log.info("compile_step: graph %d of %d", self.captures, self._max_graphs)

    def _fall_back(self, error: Exception, leaves: Any, spec: Any, last: bool) -> Any:
        """Run the plain loop from now on, unless this step raises there, too."""
        training = self._training
        if training.accumulate == 1:
            training.forget()
        if training.scaler is not None:
            training.scaler._per_optimizer_states.clear()
        said = sentence_of(error)
        # These hold the backward graph, which holds the streams of gradients.
        traceback.clear_frames(error.__traceback__)
        self._rates.restore()
        result = self._plain(leaves, spec, last)
        if (
            isinstance(error, torch.OutOfMemoryError)
            and self._out_of_memory < _MOST_OUT_OF_MEMORY
        ):
            self._out_of_memory += 1
            self._programs.clear()
            self._watched = None
            _log.info("compile_step: captures again later: %s", said)
        else:
            self._give_up(said)
        return result

    def _give_up(self, what: str) -> None:
        self.reason = what
        self._programs.clear()
        self._watched = None
        self._rates.restore()
        self._warn(f"compile_step runs eagerly from now on: {what}")

    def _report_full(self) -> None:
        if not self._reported:
            self._reported = True
            self._warn(
                f"compile_step keeps {self._max_graphs} graphs, and steps of further "
                "shapes run without one: pad the inputs, or raise max_graphs"
            )

    @staticmethod
    def _warn(text: str) -> None:
        depth, frame = 1, sys._getframe()
        while frame.f_back and frame.f_globals.get("__name__", "").startswith(
            "npu_dispatch."
        ):
            depth, frame = depth + 1, frame.f_back
        warnings.warn(text, stacklevel=depth)
