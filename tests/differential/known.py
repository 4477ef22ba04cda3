"""Differences that are known, so that a run is red for new ones only.

Each has a program in corpus/known.py that shows it; test_fuzz.py fails when it no
longer does, so that an entry whose bug is fixed is removed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.compare import Difference
from tests.differential.widened import TABLE


@dataclass(frozen=True)
class Known:
    """A kind of difference: a program of that name in corpus/known.py shows it."""

    name: str
    reason: str
    matches: Callable[[Difference], bool]
    torch: str = ""  # the minor version whose cpu differs; "": each


def _wider(d: Difference) -> bool:
    # Where npu raises too, it is for what comes after the dtype.
    kinds = ("error only on cpu", "type", "text")  # of error
    return d.kind in kinds and d.refused in TABLE


def _version_of_grad(d: Difference) -> bool:
    return d.kind == "version" and ".grad" in d.what and "backward" in d.step


def _version_of_max_pool1d(d: Difference) -> bool:
    return d.kind == "version" and "max_pool1d(" in d.step


def _strides_of_max_pool1d(d: Difference) -> bool:
    return d.kind == "strides" and "max_pool1d(" in d.step


def _version_of_matmul_out(d: Difference) -> bool:
    return d.kind == "version" and "matmul(" in d.step and "out=" in d.step


def _node_of_linear(d: Difference) -> bool:
    return d.kind == "grad_fn" and "linear(" in d.step


KNOWN = [
    Known(
        "node_of_linear",
        "a linear layer is one node of autograd's graph, as on devices that have a "
        "kernel of their own for it; cpu's is made of views and of addmm",
        _node_of_linear,
    ),
    Known(
        "version_of_max_pool1d",
        "cpu's kernel for it counts what it writes to its own result; CUDA, too, has "
        "none and takes max_pool2d",
        _version_of_max_pool1d,
    ),
    Known(
        "strides_of_max_pool1d",
        "max_pool2d, which torch takes on CUDA, too, lays its result out like its "
        "argument; cpu's own kernel does not",
        _strides_of_max_pool1d,
    ),
    Known(
        "version_of_matmul_out",
        "torch resizes the result by an operator, which counts as a write, on every "
        "device but cpu",
        _version_of_matmul_out,
    ),
    Known(
        "version_of_a_gradient",
        "whether the first gradient is a copy, which counts as a write, follows from "
        "how cpu's backward happens to lay it out",
        _version_of_grad,
        torch="2.13",
    ),
    Known(
        "dtypes_of_cuda",
        "a dtype that CUDA's kernel takes and cpu's does not is computed",
        _wider,
    ),
]


def explains(difference: Difference) -> str | None:
    """Return the name of the known difference that this one is, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry.name
    return None
