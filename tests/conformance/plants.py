"""Runs the conformance of operators that were broken on purpose.

plants.py FOLDER: leaves FOLDER/PLANT.txt, what the run of each printed, and
prints {plant: exit status} as JSON. Each plant has a process, forked from one
that has all imported.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tests.conformance import run
from tests.conformance.session import OPERATORS

LIBRARY = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]


def _replace(name: str, kernel: Callable[..., Tensor]) -> None:
    LIBRARY.impl(name, kernel, "PrivateUse1", allow_override=True)  # type: ignore[no-untyped-call]


def _wrong_value() -> None:
    _replace("digamma", lambda x: (x.cpu().digamma() + 0.01).npu())


def _wrong_dtype() -> None:
    _replace("digamma", lambda x: x.cpu().digamma().double().npu())


def _wrong_shape() -> None:
    _replace("digamma", lambda x: x.cpu().digamma().unsqueeze(0).npu())


def _on_cpu() -> None:
    _replace("digamma", lambda x: x.cpu().digamma())


def _view_of_input() -> None:
    _replace("trunc", lambda x: x.copy_(x.cpu().trunc()))


def _alters_input() -> None:
    def kernel(x: Tensor) -> Tensor:
        result = x.cpu().digamma().npu()
        x.zero_()
        return result

    _replace("digamma", kernel)


def _in_place_writes_nothing() -> None:
    _replace("digamma_", lambda x: x)


def _out_writes_nothing() -> None:
    _replace("digamma.out", lambda x, out: out)


def _wrong_backward() -> None:
    # What the gradient of digamma is made of.
    _replace("polygamma", lambda n, x: torch.zeros_like(x))


def _wrong_strides() -> None:
    _replace("triu", lambda x, k=0: x.cpu().triu(k).mT.contiguous().mT.npu())


def _no_error() -> None:
    _replace("gather", lambda x, dim, index, sparse_grad=False: torch.zeros_like(x))


def _not_found_again() -> None:
    def kernel(x: Tensor) -> Tensor:
        dtype = torch.result_type(x, 1.0)
        return torch.digamma(x, out=torch.empty(0, dtype=dtype, device=x.device))

    _replace("digamma", kernel)


def _crash() -> None:
    _replace("digamma", lambda x: os.kill(os.getpid(), signal.SIGSEGV))  # type: ignore[arg-type, return-value]


def _hang() -> None:
    _replace("digamma", lambda x: threading.Event().wait())  # type: ignore[arg-type, return-value]


def _no_samples() -> None:
    OPERATORS["digamma"].sample_inputs_func = lambda *_, **__: iter(())


def _samples_raise() -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no samples today")

    OPERATORS["digamma"].sample_inputs_func = refuse


def _nothing() -> None:
    pass


PLANTS = {
    "wrong_value": _wrong_value,
    "wrong_dtype": _wrong_dtype,
    "wrong_shape": _wrong_shape,
    "on_cpu": _on_cpu,
    "view_of_input": _view_of_input,
    "alters_input": _alters_input,
    "in_place_writes_nothing": _in_place_writes_nothing,
    "out_writes_nothing": _out_writes_nothing,
    "wrong_backward": _wrong_backward,
    "wrong_strides": _wrong_strides,
    "no_error": _no_error,
    "not_found_again": _not_found_again,
    "crash": _crash,
    "hang": _hang,
    "no_samples": _no_samples,
    "samples_raise": _samples_raise,
    "nothing": _nothing,
}
OPTIONS = {
    "hang": ["--limit", "5"],
    "wrong_strides": ["--ops", "^triu$", "--strict"],
    "view_of_input": ["--ops", "^trunc$"],
    "no_error": ["--ops", "^gather$", "--variants", "fwd,wrong_calls"],
}


def _run(plant: str, folder: Path) -> int:
    output = os.open(folder / f"{plant}.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    warnings.simplefilter("ignore")
    sys.argv[1:] = [
        *("--ops", "^digamma$", "--dtypes", "float32", "--seed", "1"),
        *("--jobs", "1", "--json", str(folder / f"{plant}.json")),
        *OPTIONS.get(plant, []),
    ]
    PLANTS[plant]()
    status = run.main()
    sys.stdout.flush()
    return status


def main() -> None:
    folder, statuses = Path(sys.argv[1]), {}
    gc.freeze()  # Else each run searches all that is imported for garbage.
    for plant in PLANTS:
        child = os.fork()
        if child == 0:
            status = 99
            try:
                status = _run(plant, folder)
            finally:
                os._exit(status)
        statuses[plant] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
