"""One call for a graph: the Python program that Inductor writes, read once as steps.

A graph whose shapes are fixed and that computes on one device is a straight list of
allocations, launches and calls of operators. _C.GraphProgram runs such a list. What
is no such list, or has a line that is not known here, stays Python.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from npu_dispatch import _C

__all__ = ["as_program"]

Written = Callable[[list[Any]], Sequence[Any]]

# Lines that say nothing to a program: its memory is aligned.
_IGNORED = {"assert_alignment"}
# Operators whose results may be no tensors, or whose kernels are Python.
_NAMESPACES = ("aten", "prims")


class _UnknownError(Exception):
    """A line that is no step."""


def as_program(written: Written, scope: dict[str, Any], device: int) -> Written:
    """Return a callable that does what `written`, of a module with `scope`, does."""
    try:
        return _Reader(scope, device).read(written)
    except (_UnknownError, LookupError, OSError, RuntimeError, TypeError, ValueError):
        return written  # OSError: its text is gone; others: not what C++ expects


def _names(node: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _operator(target: Any, by_name: set[str]) -> torch._ops.OpOverload:
    """Return the overload that a call of `target` with these keywords reaches."""
    if isinstance(target, torch._ops.OpOverload):
        return target
    name = getattr(target, "__name__", "")
    if not name or getattr(torch, name, None) is not target:
        raise _UnknownError(name)
    packet = getattr(torch.ops.aten, name)
    overload = "out" if "out" in by_name else "default"
    if overload not in packet.overloads():
        raise _UnknownError(name)
    found: torch._ops.OpOverload = getattr(packet, overload)
    return found


class _Reader:
    def __init__(self, scope: dict[str, Any], device: int) -> None:
        self._scope = scope
        self._device = device
        self._steps: list[tuple[Any, ...]] = []
        # Which slots a name stands for: several for what a call returns.
        self._slots_of: dict[str, tuple[int, ...]] = {}
        self._uses: Counter[int] = Counter()  # how many names a slot has
        self._slots = self._inputs = 0

    def read(self, written: Written) -> Written:
        function = ast.parse(textwrap.dedent(inspect.getsource(written))).body[0]
        if not isinstance(function, ast.FunctionDef):
            raise _UnknownError(type(function).__name__)
        *lines, last = function.body
        for line in lines:
            self._line(line)
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
            raise _UnknownError("return")
        results = [self._result(value) for value in last.value.elts]
        return _C.graph_program(
            written, self._device, self._inputs, self._slots, self._steps, results
        )

    def _line(self, line: ast.stmt) -> None:
        match line:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name("args")):
                for name in names:
                    assert isinstance(name, ast.Name)
                    self._name(name.id, (self._new(),))
                self._inputs = self._slots
            case ast.Assign(targets=[ast.Name(name)], value=value):
                self._assign(name, value)
            case ast.Delete(targets=names):
                for deleted in names:
                    if not isinstance(deleted, ast.Name):
                        raise _UnknownError("del")
                    self._forget(deleted.id)
            case ast.Expr(value=ast.Call() as call):
                self._statement(call)
            case _:
                raise _UnknownError(ast.unparse(line))

    def _new(self) -> int:
        self._slots += 1
        return self._slots - 1

    def _name(self, name: str, slots: tuple[int, ...]) -> None:
        self._uses.update(slots)
        if name in self._slots_of:
            self._forget(name)
        self._slots_of[name] = slots

    def _forget(self, name: str) -> None:
        for slot in self._slots_of.pop(name):
            self._uses[slot] -= 1
            if not self._uses[slot]:
                self._steps.append(("drop", slot))

    def _constant(self, node: ast.expr) -> Any:
        if any(name in self._slots_of or name == "args" for name in _names(node)):
            raise _UnknownError(ast.unparse(node))
        code = compile(ast.Expression(node), "<graph>", "eval")
        try:
            return eval(code, self._scope)
        except (NameError, AttributeError) as error:
            raise _UnknownError(ast.unparse(node)) from error

    def _slot(self, node: ast.expr) -> int | None:
        """Return the slot that an argument is; None of a constant."""
        match node:
            case ast.Name(name) if name in self._slots_of:
                (slot,) = self._slots_of[name]
                return slot
            case ast.Call(func=ast.Name("reinterpret_tensor")):
                slot = self._new()
                self._view(slot, node)
                return slot
        return None

    def _view(self, slot: int, call: ast.Call) -> None:
        of, sizes, strides, offset = call.args
        seen = self._slot(of)
        if seen is None:
            raise _UnknownError(ast.unparse(call))
        extents = self._constant(sizes), self._constant(strides)
        self._steps.append(("view", slot, seen, *extents, self._constant(offset)))

    def _assign(self, name: str, value: ast.expr) -> None:
        match value:
            case ast.Name(other) if other in self._slots_of:
                self._name(name, self._slots_of[other])
            case ast.Subscript(value=ast.Name(other), slice=ast.Constant(int(place))):
                self._name(name, (self._slots_of[other][place],))
            case ast.Call(func=ast.Name("empty_strided_npu"), args=arguments):
                *layout, device = map(self._constant, arguments)
                if device != self._device:
                    raise _UnknownError("several devices")
                slot = self._new()
                self._steps.append(("empty", slot, *layout))
                self._name(name, (slot,))
            case ast.Call(func=ast.Name("reinterpret_tensor")):
                slot = self._new()
                self._view(slot, value)
                self._name(name, (slot,))
            case ast.Call():
                self._name(name, self._call(value))
            case _:
                raise _UnknownError(ast.unparse(value))

    def _statement(self, call: ast.Call) -> None:
        match call.func:
            case ast.Attribute(value=ast.Name("args"), attr="clear"):
                return
            case ast.Name("assert_size_stride"):
                self._assert(*call.args[:3])
            case ast.Name(name) if name in _IGNORED:
                return
            case ast.Name(name) if name.startswith("npu_"):
                self._launch(self._scope[name], call.args)
            case _:
                if self._call(call, out=True):
                    raise _UnknownError(ast.unparse(call))

    def _assert(self, of: ast.expr, sizes: ast.expr, strides: ast.expr) -> None:
        slot = self._slot(of)
        if slot is None:
            raise _UnknownError(ast.unparse(of))
        kind = "expect" if slot < self._inputs else "check"
        extents = self._constant(sizes), self._constant(strides)
        self._steps.append((kind, slot, *extents))

    def _argument(self, node: ast.expr) -> tuple[bool, Any]:
        slot = self._slot(node)
        return (False, self._constant(node)) if slot is None else (True, slot)

    def _temporary(self, arguments: Sequence[tuple[bool, Any]]) -> None:
        """Drop the views that only these arguments were."""
        for is_slot, slot in arguments:
            if is_slot and not self._uses[slot]:
                self._steps.append(("drop", slot))

    def _launch(self, kernel: Any, nodes: Sequence[ast.expr]) -> None:
        arguments = [self._argument(node) for node in nodes]
        self._steps.append(("launch", kernel, arguments))
        self._temporary(arguments)

    def _call(self, call: ast.Call, out: bool = False) -> tuple[int, ...]:
        given = {word.arg: word.value for word in call.keywords if word.arg}
        op = _operator(self._constant(call.func), set(given))
        schema = op._schema
        writes = [a.name for a in schema.arguments if a.is_write]
        if (
            op.namespace not in _NAMESPACES
            or writes != (["out"] if out else [])
            or any(str(r.type) != "Tensor" for r in schema.returns)
        ):
            raise _UnknownError(schema.name)
        positional = [a.name for a in schema.arguments if not a.kwarg_only]
        given |= dict(zip(positional, call.args, strict=False))
        arguments = [
            self._argument(given.pop(a.name))
            if a.name in given
            else (False, a.default_value)
            for a in schema.arguments
        ]
        if given:
            raise _UnknownError(schema.name)
        results = () if out else tuple(self._new() for _ in schema.returns)
        name = schema.name, schema.overload_name
        self._steps.append(("call", *name, arguments, results))
        self._temporary(arguments)
        return results

    def _result(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and node.value is None:
            return -1
        slot = self._slot(node)
        if slot is None:
            raise _UnknownError(ast.unparse(node))
        return slot
