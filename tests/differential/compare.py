"""Where two runs of one program differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tests.differential.machine import Trace
from tests.differential.observe import Error, Values

# What may be known only by looking at values, which lie on the device.
LATE = (
    "out of range",
    "out of bounds",
    "out of DATA bounds",
    "ZeroDivisionError",
    "to be non-negative",
    "Class values must be",
    "negative powers",
    "Target ",
    "index ",
)
# Kernels of BLAS and oneDNN choose their order of additions by alignment.
TOLERANT = (
    "mm(",
    "mv(",
    "dot(",
    "matmul",
    " @ ",
    "linear(",
    "conv",
    "einsum",
    "scaled_dot",
    "outer(",
)


@dataclass(frozen=True)
class Difference:
    """The first thing that differs, and where."""

    number: int  # of the step; of the last one for values
    step: str
    what: str  # "error", or what of which variable
    cpu: str
    npu: str

    def __str__(self) -> str:
        return (
            f"step {self.number}: {self.step}\n"
            f"  {self.what}\n    cpu: {self.cpu}\n    npu: {self.npu}"
        )

    @property
    def kind(self) -> str:
        """What stays the same while a program is made shorter."""
        what = self.what.split(" of ")[0]
        return what.split(":")[0]


def compare(cpu: Trace, npu: Trace) -> Difference | None:
    versions = True
    for number, (c, n) in enumerate(zip(cpu.seen, npu.seen, strict=True)):
        if what := _errors_differ(c.error, n.error):
            return Difference(number, c.step, what, str(c.error), str(n.error))
        if n.error is not None and ("_foreach_" in c.step or "out=" in c.step):
            # cpu has written the tensors before the one that failed, or has made
            # room for a result: what is there then is nobody's business.
            return None
        if n.error is not None and n.error.late:
            if "backward" in c.step or "grad" in c.step:
                return None  # cpu stopped in the middle, npu at the end.
            versions = False
        for name, look in c.looks.items():
            if name not in n.looks:
                return Difference(number, c.step, f"variable of {name}", "bound", "not")
            if look != n.looks[name]:
                found = _looks_differ(name, look, n.looks[name], versions)
                if found:
                    return Difference(number, c.step, *found)
        if len(c.looks) != len(n.looks):
            return Difference(number, c.step, "variables", str(len(c.looks)), "more")
    last = len(cpu.seen) - 1
    tolerant = any(word in s.step for s in cpu.seen for word in TOLERANT)
    for name, value in cpu.values.items():
        if (found := _values_differ(value, npu.values[name], tolerant)) is not None:
            return Difference(last, cpu.seen[last].step, f"values of {name}", *found)
    return None


def _errors_differ(cpu: Error | None, npu: Error | None) -> str | None:
    if cpu is None and npu is None:
        return None
    if cpu is None:
        return "error only on npu"
    if npu is None:
        return "error only on cpu"
    if npu.late and not any(word in cpu.text for word in LATE):
        return "error that comes late"
    if cpu.kinds[0] not in npu.kinds:
        return "type of error"
    if cpu.text != npu.text:
        return "text of error"
    return None


def _looks_differ(
    name: str, cpu: Any, npu: Any, versions: bool
) -> tuple[str, str, str] | None:
    if isinstance(cpu, tuple) and isinstance(npu, tuple) and len(cpu) == len(npu):
        for i, (c, n) in enumerate(zip(cpu, npu, strict=True)):
            if c != n and (found := _looks_differ(f"{name}[{i}]", c, n, versions)):
                return found
        return None
    if not isinstance(cpu, dict) or not isinstance(npu, dict):
        return None if cpu == npu else (f"value of {name}", str(cpu), str(npu))
    for what in cpu:
        if what == "device" or (what == "version" and not versions):
            continue
        if cpu[what] != npu[what]:
            if what == "grad" and isinstance(cpu[what], dict) and npu[what]:
                return _looks_differ(f"{name}.grad", cpu[what], npu[what], versions)
            shape = f" of shape {cpu['shape']}" if what == "strides" else ""
            return f"{what} of {name}", f"{cpu[what]}{shape}", str(npu[what])
    return None


def _values_differ(cpu: Values, npu: Values, tolerant: bool) -> tuple[str, str] | None:
    if cpu.other != npu.other:
        return cpu.other, npu.other
    for c, n in zip(cpu.tensors, npu.tensors, strict=True):
        if _same(c, n):
            continue
        if c.dtype == n.dtype == torch.uint8 and c.dim() == 1 and c.shape != n.shape:
            continue  # Memory that a kernel left over when it made a result smaller.
        if c.dtype == torch.uint8:  # A storage; its tensor comes next.
            follows = _without_bits(cpu, npu, tolerant)
            if follows is None:
                continue
            return follows
        if tolerant and c.dtype.is_floating_point and _close(c, n):
            continue
        return str(c.tolist())[:300], str(n.tolist())[:300]
    return None


def _without_bits(cpu: Values, npu: Values, tolerant: bool) -> tuple[str, str] | None:
    """Explain differing bytes by the elements that lie there."""
    same = True
    for c, n in zip(cpu.tensors, npu.tensors, strict=True):
        if c.dtype == torch.uint8 or _same(c, n):
            continue
        same = False
        if not (tolerant and c.dtype.is_floating_point and _close(c, n)):
            return str(c.tolist())[:300], str(n.tolist())[:300]
    if not same or any(_has_nan(c) for c in cpu.tensors) or tolerant:
        return None  # Payloads of NaN are nobody's business.
    return "other bytes outside the tensor", ""


def _has_nan(t: torch.Tensor) -> bool:
    return (t.dtype.is_floating_point or t.dtype.is_complex) and bool(t.isnan().any())


def _same(cpu: torch.Tensor, npu: torch.Tensor) -> bool:
    if cpu.shape != npu.shape or cpu.dtype != npu.dtype:
        return False
    if torch.equal(cpu, npu):
        if not cpu.dtype.is_floating_point:
            return True
        return torch.equal(cpu.signbit(), npu.signbit())
    if not (cpu.dtype.is_floating_point or cpu.dtype.is_complex):
        return False
    return bool(((cpu == npu) | (cpu.isnan() & npu.isnan())).all())


def _close(cpu: torch.Tensor, npu: torch.Tensor) -> bool:
    half = cpu.dtype in (torch.float16, torch.bfloat16)
    rtol = 2e-2 if half else 1e-5
    return torch.allclose(
        cpu.double(), npu.double(), rtol=rtol, atol=1e-5, equal_nan=True
    )
