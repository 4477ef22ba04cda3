"""Which operator refused which dtype, where a step of a program raises on cpu.

The words of the error name a kernel, which is no operator's name.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# "aten::sum.dim_IntList", and the dtype of the first tensor that it was given.
Refused = tuple[str, torch.dtype | None]
_MADE_OF_OTHERS = torch._C.DispatchKey.CompositeExplicitAutograd
_NPU = torch._C.DispatchKey.PrivateUse1


class _Watch(TorchDispatchMode):
    """Notes calls that raise.

    Of an operator that is made of others on every device, npu sees those alone: it
    is called again, so that the one of them that raises is noted.
    """

    def __init__(self, raised: list[Refused]) -> None:
        super().__init__()
        self._raised = raised

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name, kwargs = func.name(), kwargs or {}
        try:
            return func(*args, **kwargs)
        except Exception:
            self._raised.append((name, _first_dtype(args, kwargs)))
            if _is_made_of_others(name):
                with self:
                    func._op_dk(_MADE_OF_OTHERS, *args, **kwargs)
            raise


def _is_made_of_others(name: str) -> bool:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(name, _MADE_OF_OTHERS) and not has_kernel(name, _NPU)


def _first_dtype(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.dtype | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value.dtype
    return None


def refused(program: list[str], number: int) -> Refused | None:
    """Run a program on cpu as far as a step, and return what raised in that step."""
    from tests.differential.machine import Machine

    raised: list[Refused] = []
    machine = Machine("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for step in program[:number]:
                machine.run(step)
            machine.watch = lambda: _Watch(raised)
            machine.run(program[number])
        finally:
            machine.close()
    return raised[-1] if raised else None
