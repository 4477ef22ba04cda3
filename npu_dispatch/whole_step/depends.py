"""What a graph depends on, and how that is compared."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils import _pytree as pytree

from npu_dispatch import _C
from npu_dispatch.whole_step.training import Training

# Their values of one type are equal only where nothing tells them apart.
_PLAIN = (
    *(NoneType, bool, int, str, bytes),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
_INNER = ("_modules", "_parameters", "_buffers")
_GLOBAL_HOOKS = [
    known
    for module in (modules, optimizers)
    for name, known in vars(module).items()
    if name.startswith("_global_") and name.endswith("_hooks")
]
# Hooks from here count steps and change nothing.
_COUNTING = tuple(
    str(folder)
    for folder in (Path(__file__).parents[1], Path(torch.__file__).parent / "profiler")
)


def unknown_in(result: Any) -> str:
    """Name a type in a result in which nobody can find tensors; '' if there is none."""
    known = *_PLAIN, float, complex
    for leaf in pytree.tree_leaves(result):
        if not isinstance(leaf, Tensor) and type(leaf) not in known:
            return type(leaf).__name__
    return ""


def _bits(number: float) -> str:
    if math.copysign(1.0, number) < 0 and not number < 0:
        raise TypeError(f"a compiled model cannot tell {number!r} from {-number!r}")
    return number.hex()


def exact(value: Any) -> Any:
    """Return a key that only a value of the same type and with the same bits has.

    A graph has arguments as constants, and Python's `==` does not tell 1, True and 1.0
    apart, nor 0.0 and -0.0. Dynamo's guards know the types of arguments, but neither
    the sign of a zero nor the type of a number that is a dict's key. An object of a
    type that is not known here has the key of no other one that is alive, however equal
    they are. Raises TypeError for what may change, and for -0.0.
    """
    kind = type(value)
    if isinstance(value, Tensor):
        kinds = value.dtype, value.requires_grad, value.is_inference()
        return value.shape, value.stride(), *kinds
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, _bits(value)
    if kind is complex:
        return kind, _bits(value.real), _bits(value.imag)
    hash(value)  # raises TypeError for what may change
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(value)
        return kind, *(exact(getattr(value, field.name)) for field in fields)
    return kind, id(value)


def _exact_name(name: Any) -> Any:
    if isinstance(name, list | tuple):
        return type(name), *map(_exact_name, name)
    if isinstance(name, bool | float | complex):
        raise TypeError(
            f"a compiled model cannot tell the key {name!r} of a dict from an equal one"
        )
    return exact(name)


def exact_spec(spec: pytree.TreeSpec) -> Any:
    """Return the same for a structure, which has keys of dicts as values."""
    return spec.type, _exact_name(spec.context), *map(exact_spec, spec.children())


def host_draws() -> Any:
    """Return the state of the generators from which a model may draw on the host."""
    numpy = sys.modules.get("numpy")
    of_numpy = numpy and str(numpy.random.get_state()[1:])
    return random.getstate(), torch.get_rng_state().tolist(), of_numpy


def _counts(hook: Callable[..., Any]) -> bool:
    code = getattr(hook, "__code__", None)
    return code is not None and code.co_filename.startswith(_COUNTING)


def hooks(optimizer: Any) -> str:
    """Say which hooks, other than those of tensors, a replay would leave out; or ''."""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "hooks of the optimizer's step() are Python code"
    for of_all in _GLOBAL_HOOKS:
        # Other threads' captures have a hook for a moment.
        if of_all and not all(map(_counts, list(of_all.values()))):
            return "hooks of all modules or optimizers are Python code"
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return "hooks of saved tensors are Python code"
    return ""


def count_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell those who count steps that a replay has taken one."""
    for hook in list(optimizers._global_optimizer_post_hooks.values()):
        hook(optimizer, (), {})


@contextlib.contextmanager
def all_ways_compared() -> Iterator[None]:
    """Let what Dynamo compiles meanwhile compare each two ways to one object.

    Dynamo's guards compare them if both begin at an argument or both at a global
    variable. A step's model is an argument, and its loss may find a parameter of the
    model in a global variable, which may get another one.
    """
    from torch._dynamo import convert_frame, guards, variables

    builder: Any = variables.builder
    before = guards.make_dupe_guard

    def compare(source: Any, known: Any) -> Any:
        guard = before(source, known)
        if guard or known is None or known == source:
            return guard
        return functools.partial(guards.GuardBuilder.DUPLICATE_INPUT, source_b=known)

    with convert_frame.compile_lock:  # nobody else compiles
        builder.make_dupe_guard = compare
        try:
            yield
        finally:
            builder.make_dupe_guard = before


# Where Watched looks. Dynamo writes L['training'] for what it compiles.
_WATCHED = re.compile(
    r"L\['training'\]\.(model|loss_fn)(\._modules\['[^']*'\])*"
    r"(\._(parameters|buffers)\['[^']*'\]|\.\w+)"
)


class Places:
    """Tensors that a graph reads through containers that nobody watches."""

    def __init__(self, paths: dict[int, str], scope: dict[str, Any]) -> None:
        """Take Python expressions, by the id of the tensor, and their names' values."""
        self._scope = scope
        self._places = [
            (compile(path, "<place>", "eval"), one)
            for one, path in paths.items()
            if not _WATCHED.fullmatch(path)
        ]

    def unchanged(self) -> bool:
        """Return whether each place still has the tensor that it had."""
        try:
            return all(id(eval(at, self._scope)) == one for at, one in self._places)
        except Exception:  # it is gone
            return False


class Watched:
    """Where the tensors are that a graph reads, and what the optimizer was told.

    A graph reads parameters, buffers, states and modules' other tensors where they
    are, and has an optimizer's numbers as constants. Those of the model are Dynamo's
    affair, whose guards know which of them its code has read.
    """

    def __init__(self, training: Training, *, ignores_rates: bool) -> None:
        optimizer, scaler = training.optimizer, training.scaler
        found: list[tuple[str, Any]] = []
        ignored: dict[str, set[str]] = {}  # by name
        for root in (training.model, training.loss_fn):
            inside = root.named_modules() if isinstance(root, nn.Module) else ()
            for path, module in inside:
                name = ".".join(filter(None, (type(root).__name__, path)))
                own = vars(module)
                found += ((name, own[inner]) for inner in _INNER)
                if any(isinstance(value, Tensor) for value in own.values()):
                    found.append((name, own))
        name, groups = type(optimizer).__name__, optimizer.param_groups
        found += [(name, vars(optimizer)), (f"{name}.param_groups", groups)]
        for i, group in enumerate(groups):
            at = f"{name}.param_groups[{i}]"
            found += [(at, group), (f"{at}.params", group["params"])]
            if ignores_rates:
                ignored[at] = {"lr"}
        states = (optimizer.state, *optimizer.state.values())
        found += ((f"{name}.state", state) for state in states)
        if scaler is not None:
            found.append(("scaler", vars(scaler)))
            ignored["scaler"] = {"_per_optimizer_states"}
        containers = [container for _, container in found]
        values = [list(c.values() if isinstance(c, dict) else c) for c in containers]
        self._names = [name for name, _ in found]
        self.known = {id(value) for inside in values for value in inside}
        self._watch = _C.Watch([(c, ignored.get(n, set())) for n, c in found])
        self._watch.kept = containers, values, [list(c) for c in containers]

    def hooked(self) -> str:
        """Name a tensor that has a hook of its gradient; '' if none has."""
        return self._name(self._watch.hooked())

    def difference(self) -> str:
        """Say what has changed; '' if nothing has."""
        return self._name(self._watch.difference())

    def _name(self, found: tuple[int, Any] | None) -> str:
        if found is None:
            return ""
        name, key = self._names[found[0]], found[1]
        return f"{name}.{key}" if isinstance(key, str) else f"the contents of {name}"
