"""Dtypes that CUDA's kernels take and cpu's do not: which of them the npu takes.

torch's operator database lists both. Each operator is called in each such dtype on
npu and compared with the call in the wider dtype on cpu. The site has a page of what
this finds (tools/reference/dtypes_page.py).
"""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from tests.differential.widened import TOLERANCE, wider

SAMPLES = 5


def missing_on_cpu() -> Iterator[tuple[Any, torch.dtype]]:
    """Operators and dtypes that CUDA has and cpu has not, by torch's lists."""
    for op in op_db:
        for dtype in sorted(set(op.dtypesIfCUDA) - set(op.dtypes), key=str):
            yield op, dtype


def outcome(op: Any, dtype: torch.dtype) -> str:
    """Return "" where samples in `dtype` give the values of the wider dtype."""
    torch.manual_seed(0)
    wide = wider(dtype)
    try:
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception as error:
        return f"torch makes no samples: {_line(error)}"
    for sample in samples[:SAMPLES]:
        arguments = (sample.input, sample.args, sample.kwargs)
        try:
            x, args, kwargs = _moved(arguments, lambda t: t.npu())
            got = pytree.tree_map(_to_cpu, op(x, *args, **kwargs))
        except Exception as error:
            torch.npu.clear_error()  # of a task that failed late
            return _line(error)
        x, args, kwargs = _moved(
            arguments, lambda t: t.to(wide) if t.dtype == dtype else t
        )
        try:
            expected = op(x, *args, **kwargs)
        except Exception as error:
            return f"nothing to compare with: {_line(error)}"
        # Sums of rounded numbers may be small beside them.
        tolerance = TOLERANCE.get(dtype, 0.0)
        values = [t for t in pytree.tree_leaves(expected) if isinstance(t, Tensor)]
        largest = max((_largest(t) for t in values), default=1.0)
        try:
            torch.testing.assert_close(
                pytree.tree_map(_wide, got),
                # What is too large for the narrow one is infinite in it.
                pytree.tree_map(_wide, pytree.tree_map(_like, expected, got)),
                rtol=tolerance,
                atol=tolerance * max(1.0, largest),
                check_dtype=False,
                equal_nan=True,
                check_stride=False,
            )
        except AssertionError as error:
            return "other values: " + _line(error)
    return ""


def _moved(tree: Any, move: Any) -> Any:
    return pytree.tree_map_only(Tensor, move, tree)


def _to_cpu(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    assert value.device.type == "npu"
    return value.cpu()


def _largest(t: Tensor) -> float:
    finite = t[t.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 1.0


def _like(value: Any, narrow: Any) -> Any:
    return value.to(narrow.dtype) if isinstance(value, Tensor) else value


def _wide(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:90]


def table() -> dict[tuple[str, str], str]:
    warnings.simplefilter("ignore")
    return {
        (op.full_name, str(dtype).removeprefix("torch.")): outcome(op, dtype)
        for op, dtype in missing_on_cpu()
    }
