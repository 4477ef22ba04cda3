"""The table of operators and dtypes that cpu refuses and npu computes in wider ones."""

from __future__ import annotations

import re
from pathlib import Path

import torch

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
