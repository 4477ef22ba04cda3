"""Dumps of the tensors that operators get and return, one line of JSON per call."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.devices import is_npu


def _summary(tensor: torch.Tensor) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
    numbers = tensor.detach().cpu()
    if numbers.numel() and not numbers.is_complex():
        numbers = numbers.double()
        entry |= {
            "min": numbers.min().item(),
            "max": numbers.max().item(),
            "mean": numbers.mean().item(),
        }
    return entry


def _tensors(values: Any) -> list[dict[str, Any]]:
    leaves = tree_leaves(values)
    return [_summary(v) for v in leaves if isinstance(v, torch.Tensor) and is_npu(v)]


class _Dump(TorchDispatchMode):
    """Sees each operator of the thread that switched it on."""

    def __init__(self, path: Path, operators: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path, self.operators = path, operators
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a", buffering=1)  # a crash loses no line

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(func)
        wanted = not self.operators or any(part in name for part in self.operators)
        inputs = _tensors((args, kwargs)) if wanted else []
        result = func(*args, **(kwargs or {}))
        outputs = _tensors(result) if wanted else []
        if inputs or outputs:
            line = {
                "op": name,
                "time": time.time(),
                "inputs": inputs,
                "outputs": outputs,
            }
            self.file.write(json.dumps(line) + "\n")
        return result


class _State:
    lock = threading.Lock()
    ready = False
    mode: _Dump | None = None


def init_dump() -> None:
    """Prepare dumping: the first of init_dump, set_dump, run, finalize_dump."""
    with _State.lock:
        _State.ready = True


def set_dump(cfg_file: str) -> None:
    """Dump this thread's operators from now on, as a JSON file describes.

    The file has {"dump": {"dump_path": folder, "dump_list": [parts of operator
    names]}}; without a list, all operators are dumped. Each call becomes a line of
    <folder>/dump.jsonl with the shape, dtype, min, max and mean of each npu tensor,
    and waits for the stream to know these. A missing file raises AssertionError.
    """
    path = Path(cfg_file).absolute()
    if not path.exists():
        raise coded(AssertionError, f"no such dump configuration: {path}")
    if not _State.ready:
        raise coded(RuntimeError, "call torch.npu.init_dump() before set_dump()")
    rules = json.loads(path.read_text()).get("dump", {})
    if "dump_path" not in rules:
        raise coded(
            ValueError, f"{path}: expected dump.dump_path, the folder to write to"
        )
    names = [name for n in rules.get("dump_list", []) for name in _names(n)]
    finish = _State.mode
    if finish is not None:
        _close(finish)
    _State.mode = _Dump(Path(rules["dump_path"]) / "dump.jsonl", names)
    _State.mode.__enter__()  # type: ignore[no-untyped-call]


def _names(entry: Any) -> list[str]:
    """Return the operators of one list entry: a name, or torch_npu's {"layer": []}."""
    return [entry] if isinstance(entry, str) else list(entry.get("layer", []))


def _close(mode: _Dump) -> None:
    _State.mode = None
    mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    mode.file.close()


def finalize_dump() -> None:
    """Stop dumping and close the file, on the thread that called set_dump()."""
    with _State.lock:
        _State.ready = False
        if _State.mode is not None:
            _close(_State.mode)
