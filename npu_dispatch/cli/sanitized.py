"""How `npu-dispatch sanitize` runs a command, and what it says of its processes."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from npu_dispatch.config import for_child
from npu_dispatch.observe.segment.script_name import script_name
from npu_dispatch.sanitizer.processes import Process, read_all

__all__ = ["run_sanitized", "told"]


def run_sanitized(
    command: Sequence[str], mode: str, suppressions: Path | None
) -> tuple[int, list[Process]]:
    """Run a command; return its exit status, and its processes with their findings.

    The processes that it starts get the sanitizer through their environment.
    """
    with tempfile.TemporaryDirectory(prefix="npu_sanitize-") as folder:
        changes = {
            "TORCH_NPU_SANITIZER": mode,
            "TORCH_NPU_SANITIZER_FINDINGS": folder,
            # A process without the device would have no findings.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
            "NPU_AUTOLOAD": "1",
        }
        if suppressions is not None:
            changes["TORCH_NPU_SANITIZER_SUPPRESSIONS"] = str(suppressions)
        status = _run(command, for_child(**changes))
        return status, read_all(Path(folder))


def _run(command: Sequence[str], env: dict[str, str]) -> int:
    child = subprocess.Popen(list(command), env=env)

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {
        # Ctrl-C is for the child, to which the terminal sends it, too.
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        **{n: signal.signal(n, pass_on) for n in (signal.SIGTERM, signal.SIGHUP)},
    }
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def told(processes: Sequence[Process]) -> Iterator[str]:
    """Yield what is to be said of what processes have found."""
    several = len(processes) > 1
    for process in processes:
        if several and process.reports:
            yield f"npu sanitizer: {_name(process)}:"
        for report in process.reports:
            yield report.text()
        if not process.ended:
            yield (
                f"npu sanitizer: {_name(process)} "
                f"{'still runs' if process.lives() else 'did not end by itself'}: "
                f"what it did beyond {len(process.reports)} findings is not known"
            )
    found = sum(len(process.reports) for process in processes)
    where = f" in {len(processes)} processes" if several else ""
    none = "" if processes else "; no process used the device npu"
    yield f"npu sanitizer: {found} finding{'' if found == 1 else 's'}{where}{none}"
    if found:
        yield (
            "npu sanitizer: run again after each change. A wait of the host, such as "
            ".item(), orders streams by accident: without it a race can come to light."
        )


def _name(process: Process) -> str:
    words = ["python", *process.command]
    ranks = {report.rank for report in process.reports} | {process.rank}
    rank = next((one for one in ranks if one is not None), None)
    of_rank = "" if rank is None else f", rank {rank}"
    return f"process {process.pid}{of_rank} ({script_name(words)})"
