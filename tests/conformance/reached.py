"""Which operators of torch does an entry of OpInfo come to on the device?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd.profiler import profile
from torch.testing._internal.opinfo.core import OpInfo

from tests.conformance.calls import Call
from tests.conformance.checks import CALL_ERRORS, HOST_ARGUMENTS, WINDOW

# Called past the dispatcher, so that no profiler sees them: by whom.
_UNSEEN = {"_fused_sdp_choice": "scaled_dot_product_attention"}


def reached(op: OpInfo, device: str) -> set[str]:
    """Return the names ("add") that its first samples call, forward and backward.

    In whatever depth: attention comes to `_fused_sdp_choice` by way of others.
    """
    names = {op.aten_name}
    if not op.dtypes:
        return names

    @contextmanager
    def watch() -> Iterator[None]:
        with profile(use_kineto=False) as seen:
            yield
        names.update(
            event.name.removeprefix("aten::")
            for event in seen.function_events or ()
            if event.name.startswith("aten::")
        )

    dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str)
    differentiable = op.supports_autograd and dtype == torch.float32
    try:
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for sample in itertools.islice(samples, WINDOW):
            call = Call(
                op,
                sample,
                host_arguments=op.name in HOST_ARGUMENTS,
                backward="" if differentiable else None,
                watch=watch,
            )
            try:
                call.make(torch.device(device))
            except CALL_ERRORS:
                continue
    except CALL_ERRORS:
        pass
    return names


def touches(names: set[str], changed: frozenset[str]) -> bool:
    """Return whether a name is among the changed, in whatever form."""
    sought = {_UNSEEN.get(n, n).rstrip("_") for n in changed}
    return bool({n.rstrip("_") for n in names} & sought)
