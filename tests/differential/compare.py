"""Where two runs of one program differ."""

from dataclasses import dataclass
from typing import Any

import torch

from tests.differential.machine import Trace
from tests.differential.observe import Error, Look, Values
from tests.differential.widened import Refused

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
    "found idx",
    "in the valid range",
    "failed to converge",
    "singular",
    "positive-definite",
)
# What a call has changed before its kernel fails.
COUNTED = ("version", "grad_fn", "requires_grad", "leaf")
# Kernels of BLAS and oneDNN choose their order of additions by alignment.
TOLERANT = (
    "mm(",
    "mv(",
    "dot(",
    "matmul",
    " @ ",
    "linear(",
    "conv",
    "rnn(",
    "bilinear(",
    "einsum",
    "scaled_dot",
    "outer(",
    "interpolate(",  # deterministic on a device: torch's own decomposition
)


@dataclass(frozen=True)
class Difference:
    """The first thing that differs, and where."""

    number: int  # of the step; of the last one for values
    step: str
    what: str  # "error", or what of which variable
    cpu: str
    npu: str
    # What raised on cpu.
    refused: Refused | None = None

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
    # A gradient that is expanded stays so on cpu; a copy of it does not, and nobody
    # has written to that.
    through_host = any("to('cpu'" in s.step for s in cpu.seen)
    # An inference tensor outside inference mode: cpu's kernels then count what they
    # do to their own results.
    # A replay writes what a call has written before.
    versions = not any(
        "inference_mode" in s.step or "graph(" in s.step for s in cpu.seen
    )
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
                found = _looks_differ(name, look, n.looks[name], versions, through_host)
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
    if npu.late and "Class values must be" in cpu.text:
        return None  # Found by the kernel that writes them, in its words.
    if cpu.kinds[0] not in npu.kinds:
        return "type of error"
    if cpu.text != npu.text:
        return "text of error"
    return None


def _looks_differ(
    name: str, cpu: Any, npu: Any, versions: bool, through_host: bool
) -> tuple[str, str, str] | None:
    if isinstance(cpu, Look) and isinstance(npu, Look):
        for what, c, n in zip(Look._fields, cpu, npu, strict=True):
            if c == n or (what in COUNTED and not versions):
                continue
            if what == "strides" and through_host and 0 in c:
                continue
            if what == "grad" and isinstance(c, Look) and n:
                return _looks_differ(f"{name}.grad", c, n, versions, through_host)
            shape = f" of shape {cpu.shape}" if what == "strides" else ""
            return f"{what} of {name}", f"{c}{shape}", str(n)
        return None
    if isinstance(cpu, tuple) and isinstance(npu, tuple) and len(cpu) == len(npu):
        for i, (c, n) in enumerate(zip(cpu, npu, strict=True)):
            if c == n:
                continue
            if found := _looks_differ(f"{name}[{i}]", c, n, versions, through_host):
                return found
        return None
    return None if cpu == npu else (f"value of {name}", str(cpu), str(npu))


def _values_differ(cpu: Values, npu: Values, tolerant: bool) -> tuple[str, str] | None:
    if cpu.other != npu.other:
        return cpu.other, npu.other
    outside = False
    for (c_bytes, c), (n_bytes, n) in zip(cpu.tensors, npu.tensors, strict=True):
        # Where tensors lie in their storages has been compared with their looks.
        same_bytes = _same_bytes(c_bytes, n_bytes)
        if same_bytes:
            continue
        if not _same(c, n):
            if not (tolerant and c.dtype.is_floating_point and _close(c, n)):
                return str(c.tolist())[:300], str(n.tolist())[:300]
        elif same_bytes is not None and c.numel() and c.dtype != torch.bool:
            outside = True  # Of one without elements all lies outside.
    # Payloads of NaN are nobody's business.
    if not outside or tolerant or any(_has_nan(c) for _, c in cpu.tensors):
        return None
    return "other bytes outside the tensor", ""


def _same_bytes(cpu: torch.Tensor | None, npu: torch.Tensor | None) -> bool | None:
    """None: they cannot be compared."""
    if cpu is None or npu is None:
        return None
    if cpu.shape != npu.shape:
        return None  # Memory that a kernel left over when it made a result smaller.
    return torch.equal(cpu, npu)


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
