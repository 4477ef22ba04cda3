"""What the environment variables ask of the Python half, and what its children get.

No other Python file reads them. The C++ half reads its own variables
(csrc/base/env.h); docs/environment.md says what each one means.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

_DEVICE_NAME = "Virtual NPU"
_NO = frozenset({"0", "false", "no", "off"})
_YES = frozenset({"1", "true", "yes", "on"})
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, None: 1.0}


def for_child(**changes: str) -> dict[str, str]:
    """Return this process's environment with changes, for a process that it starts."""
    return {**os.environ, **changes}


def own_python(*words: str) -> list[str]:
    """Return the command that runs `-m MODULE` or `-c CODE` in this interpreter.

    It imports nothing from the current directory, where anybody may have put a file
    named like a module of Python's.
    """
    return [sys.executable, "-P", *words]


def users_python(*words: str) -> list[str]:
    """Return the command that runs a user's program as this interpreter would."""
    import subprocess  # which takes milliseconds of each `import torch`

    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, *words]


def variable(name: str) -> str | None:
    """Return a variable's text, for messages that quote it."""
    return os.environ.get(name)


def names_that_begin(prefix: str) -> list[str]:
    """Return the variables that are set and whose names begin so."""
    return sorted(name for name in os.environ if name.startswith(prefix))


def set_for_children(name: str, value: str) -> None:
    """Set a variable for this process and those that it will start."""
    os.environ[name] = value


def watch_variable(name: str, seen: Callable[[], None]) -> None:
    """Call `seen` whenever a variable is read, but by copies of all of them."""

    class Watched(os._Environ):  # type: ignore[type-arg]
        to_copy: ClassVar[list[str]] = []  # what a copy reads next

        def __iter__(self) -> Iterator[str]:
            self.to_copy[:] = super().__iter__()
            return iter(self.to_copy[:])

        def __getitem__(self, key: str) -> str:
            if self.to_copy[:1] == [key]:
                del self.to_copy[0]
            else:
                self.to_copy.clear()
                if key == name:
                    seen()
            value: str = super().__getitem__(key)
            return value

    environment: Any = os.environ
    environment.__class__ = Watched


# No dataclass, which takes milliseconds of each `import torch` to make.
class Config(NamedTuple):
    autoload: bool = True
    device_name: str = _DEVICE_NAME
    device_capability: str | None = None
    sanitizer: str | None = None  # "raise" or "report"
    sanitizer_suppressions: str | None = None
    sanitizer_findings: str | None = None  # the folder for them
    cxx: str | None = None
    inf_nan: bool = True
    is_rank: bool = False
    rank: int = -1
    compact_errors: bool = False
    watchdog_seconds: float = 0.0  # 0: none
    torch_npu_alias: bool = False
    cuda: bool = False  # means npu
    flight_recorder_file: str | None = None  # the rank is appended to it
    task_queue: int = 1
    node_name: str = ""
    emulated_spec: str | None = None  # the spec that NPU_EMULATED is made of

    @classmethod
    def read(cls, env: Mapping[str, str] | None = None) -> Config:
        """Read the environment as it is now, or `env`."""
        env = os.environ if env is None else env
        return cls(
            autoload=env.get("NPU_AUTOLOAD", "").lower() not in _NO,
            device_name=env.get("NPU_DEVICE_NAME") or _DEVICE_NAME,
            device_capability=env.get("TORCH_NPU_DEVICE_CAPABILITY"),
            sanitizer=_sanitizer_mode(env.get("TORCH_NPU_SANITIZER", "")),
            sanitizer_suppressions=env.get("TORCH_NPU_SANITIZER_SUPPRESSIONS") or None,
            sanitizer_findings=env.get("TORCH_NPU_SANITIZER_FINDINGS") or None,
            cxx=env.get("CXX") or None,
            inf_nan=env.get("INF_NAN_MODE_ENABLE") != "0"
            and env.get("INF_NAN_MODE_FORCE_DISABLE") != "1",
            is_rank=all(
                env.get(name) for name in ("RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
            ),
            rank=int(rank) if (rank := env.get("RANK", "")).isdecimal() else -1,
            compact_errors=env.get("TORCH_NPU_COMPACT_ERROR_OUTPUT") == "1",
            watchdog_seconds=seconds_of(env.get("NPU_DISPATCH_WATCHDOG", "")) or 0.0,
            flight_recorder_file=env.get("TORCH_HCCL_DEBUG_INFO_TEMP_FILE")
            or env.get("TORCH_FR_DUMP_TEMP_FILE")
            or None,
            node_name=env.get("NODE_NAME", ""),
            emulated_spec=env.get("NPU_EMULATED_SPEC", "a100-80gb-sxm")
            if env.get("NPU_DRIVER") == "emulated" and not env.get("NPU_EMULATED")
            else None,
            task_queue=_level(env.get("TASK_QUEUE_ENABLE", "")),
            torch_npu_alias=env.get("NPU_DISPATCH_TORCH_NPU_ALIAS", "").lower() in _YES,
            cuda=env.get("NPU_DISPATCH_CUDA", "").lower() in _YES,
        )


def cache_folder() -> Path:
    """Return where compiled code is kept; raise RuntimeError if there is no home."""
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "npu_dispatch"
    try:
        return Path.home() / ".cache" / "npu_dispatch"
    except RuntimeError:
        raise RuntimeError(
            f"no folder for compiled code: HOME is not set, and user {os.getuid()} "
            "is none that the system knows; set XDG_CACHE_HOME"
        ) from None


def runtime_folder() -> Path | None:
    """Return the user's folder for what lives as long as a session, or None."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(folder) if folder.startswith("/") else None


def bad_values(env: Mapping[str, str] | None = None) -> list[str]:
    """Return warnings of values that were to switch something on and do not."""
    env = os.environ if env is None else env
    told = []
    sanitizer = env.get("TORCH_NPU_SANITIZER", "")
    if _sanitizer_mode(sanitizer) is None and sanitizer.lower() not in {"", *_NO}:
        told.append(
            f"TORCH_NPU_SANITIZER={sanitizer!r} is ignored, the sanitizer is off: "
            "expected 1 or raise, report, or 0"
        )
    watchdog = env.get("NPU_DISPATCH_WATCHDOG", "")
    if watchdog and seconds_of(watchdog) is None:
        told.append(
            f"NPU_DISPATCH_WATCHDOG={watchdog!r} is ignored, there is no watchdog: "
            "expected a time such as 30s, 500ms or 2m"
        )
    return told


def _level(value: str) -> int:
    """Read 0, 1 or 2; 1 when it is none of these."""
    return int(value) if value in ("0", "1", "2") else 1


def seconds_of(text: str) -> float | None:
    """Read "30s", "500ms", "2m" or "30"; None when it is none of these."""
    match = _TIME.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def _sanitizer_mode(value: str) -> str | None:
    value = value.lower()
    if value in _YES or value == "raise":
        return "raise"
    return "report" if value == "report" else None
