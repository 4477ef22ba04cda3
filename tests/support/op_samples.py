"""Operators of PyTorch's OpInfo database with inputs of float32."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

__all__ = ["OPS", "first_samples"]

# Inputs that are tried for an operator.
_SAMPLES = 2
OPS = sorted(
    (
        op
        for op in op_db
        # What an empty tensor holds is nobody's business.
        if torch.float32 in op.supported_dtypes("cpu") and "empty" not in op.name
    ),
    key=lambda op: op.formatted_name,
)


def first_samples(op: Any) -> Iterator[Any]:
    """Give arguments and keywords, on cpu."""
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    for sample in itertools.islice(samples, _SAMPLES):
        yield (sample.input, *sample.args), sample.kwargs
