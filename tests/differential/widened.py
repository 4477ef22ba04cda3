"""Operators and dtypes that cpu refuses and npu computes in wider ones.

The words of cpu's error name a kernel, which is no operator's name: what refused a
step of a program is found by running it once more.
"""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SOURCE = Path(__file__).resolve().parents[2] / "csrc/ops/widened.cpp"
# c10's names of dtypes, and those in the errors of cpu's kernels.
_DTYPES = {
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Bool": torch.bool,
    "ComplexHalf": torch.complex32,
}
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.bool: torch.uint8,
}
# How far a result may be from that of the wider dtype.
TOLERANCE = {
    torch.float16: 4e-3,
    torch.bfloat16: 4e-2,
    torch.complex32: 8e-3,
    torch.float32: 1e-5,
    torch.float64: 1e-10,
}


def read(source: str) -> set[tuple[str, torch.dtype]]:
    """Return the table's ("aten::trace", bool), ... from the text of its file."""
    lists = {
        name: [_DTYPES[found] for found in re.findall(r"at::k(\w+)", dtypes)]
        for name, dtypes in re.findall(
            r"at::ScalarType (\w+)\[\] = \{([^}]*)\}", source
        )
    }
    _, _, rows = source.partition("constexpr Narrow kNarrow[] = {")
    return {
        (op, dtype)
        for op, name in re.findall(r'\{"(aten::[\w.]+)",\s*(\w+)\}', rows)
        for dtype in lists[name]
    }


TABLE = read(SOURCE.read_text())


def wider(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which npu computes what cpu refuses."""
    return WIDER.get(dtype, torch.float64)


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
