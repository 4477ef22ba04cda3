"""Runs the conformance of operators that were broken on purpose.

Prints {plant: [exit status, what the run printed]} as JSON. Each plant has a process,
forked from one that has all imported.
"""

import contextlib
import gc
import io
import json
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.search import report
from tests.search.children import call

LIBRARY = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Plant:
    """A kernel instead of an operator's, or other samples, and what the run says."""

    told: str
    operator: str = "digamma"
    kernel: Callable[..., Any] | None = None
    samples: Callable[..., Any] | None = None
    options: tuple[str, ...] = ()

    def __call__(self) -> None:
        if self.kernel:
            LIBRARY.impl(  # type: ignore[no-untyped-call]
                self.operator, self.kernel, "PrivateUse1", allow_override=True
            )
        if self.samples:
            from tests.conformance.session import OPERATORS

            OPERATORS["digamma"].sample_inputs_func = self.samples


def _alters_input(x: Tensor) -> Tensor:
    result = x.cpu().digamma().npu()
    x.zero_()
    return result


def _of_another_launch(x: Tensor) -> Tensor:
    dtype = torch.result_type(x, 1.0)
    return torch.digamma(x, out=torch.empty(0, dtype=dtype, device=x.device))


def _refuse(*_: object, **__: object) -> None:
    raise RuntimeError("no samples today")


PLANTS = {
    "wrong_value": Plant(
        "digamma float32 fwd\n[fwd] result: Tensor-likes are not close",
        kernel=lambda x: (x.cpu().digamma() + 0.01).npu(),
    ),
    "wrong_dtype": Plant(
        "result: dtype torch.float64 instead of torch.float32",
        kernel=lambda x: x.cpu().digamma().double().npu(),
    ),
    "wrong_shape": Plant(
        "result: shape (1, ", kernel=lambda x: x.cpu().digamma().unsqueeze(0).npu()
    ),
    "on_cpu": Plant("of the results lies on cpu", kernel=lambda x: x.cpu().digamma()),
    "view_of_input": Plant(
        "trunc float32 fwd\n[fwd] result: whether it is the input itself",
        operator="trunc",
        kernel=lambda x: x.copy_(x.cpu().trunc()),
        options=("--ops", "^trunc$"),
    ),
    "alters_input": Plant(
        "digamma float32 fwd\n[fwd] input 0 afterwards: Tensor-likes",
        kernel=_alters_input,
    ),
    "in_place_writes_nothing": Plant(
        "digamma float32 inplace\n[inplace] result: ",
        operator="digamma_",
        kernel=lambda x: x,
    ),
    "out_writes_nothing": Plant(
        "digamma float32 out\n[out] result: Tensor-likes",
        operator="digamma.out",
        kernel=lambda x, out: out,
    ),
    "wrong_backward": Plant(
        "digamma float32 bwd\n[bwd] gradient[0]: Tensor-likes",
        operator="polygamma",  # of which the gradient of digamma is made
        kernel=lambda n, x: torch.zeros_like(x),
    ),
    "wrong_strides": Plant(
        "triu float32 fwd\n[fwd] strides of tensor 0",
        operator="triu",
        kernel=lambda x, k=0: x.cpu().triu(k).mT.contiguous().mT.npu(),
        options=("--ops", "^triu$", "--strict"),
    ),
    "no_error": Plant(
        "gather any wrong_calls\n[wrong_calls] no error instead of cpu's",
        operator="gather",
        kernel=lambda x, dim, index, sparse_grad=False: torch.zeros_like(x),
        options=("--ops", "^gather$", "--variants", "fwd,wrong_calls"),
    ),
    "not_found_again": Plant(
        "float32 again\n[again] not found again: 1 of its launches",
        kernel=_of_another_launch,
    ),
    "crash": Plant(
        "digamma all crash\nended with SIGSEGV; at float32 fwd",
        kernel=lambda x: os.kill(os.getpid(), signal.SIGSEGV),
    ),
    "hang": Plant(
        "digamma all crash\nno end within 5 s; at float32 fwd",
        kernel=lambda x: threading.Event().wait(),
        options=("--limit", "5"),
    ),
    "no_samples": Plant(
        "nothing was compared: digamma", samples=lambda *_, **__: iter(())
    ),
    "samples_raise": Plant("nothing was compared: digamma", samples=_refuse),
    "nothing": Plant("operators checked: 1, failed: 0, findings: 0"),
}


def _run(name: str) -> tuple[int, str]:
    from tests.conformance import run

    warnings.simplefilter("ignore")
    sys.argv[1:] = [
        *("--ops", "^digamma$", "--dtypes", "float32", "--seed", "1", "--jobs", "1"),
        *PLANTS[name].options,
    ]
    PLANTS[name]()
    with tempfile.TemporaryDirectory() as folder:
        report.OUT = Path(folder)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = run.main()
    return status, output.getvalue()


if __name__ == "__main__":
    from tests.conformance import session  # noqa: F401 - before the forks

    gc.freeze()  # Else each run searches all that is imported for garbage.
    print(json.dumps({name: call(_run, name, seconds=600) for name in PLANTS}))
