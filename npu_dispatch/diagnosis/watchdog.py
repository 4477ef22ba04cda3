"""What a process's streams and host threads are doing, read from outside.

The process need not do anything for it, so it may hang, with or without the GIL.
`python -m npu_dispatch.diagnosis.watchdog PID SECONDS` watches a process until
it ends, and writes a dump whenever a stream with work has not moved for so long;
NPU_DISPATCH_WATCHDOG=30s starts that for the process itself. A rank of a group
says what the other ranks on its machine are doing, too, and saves its flight
recorder where TORCH_FR_DUMP_TEMP_FILE, or torch_npu's name for it, says.
"""

from __future__ import annotations

import subprocess
import sys
import time

from npu_dispatch.config import Config
from npu_dispatch.diagnosis.describe import dump_lines
from npu_dispatch.processes import Processes, ProcessView
from npu_dispatch.system.own_python import own_python
from npu_dispatch.system.proc_stat import has_ended

__all__ = ["start_watchdog", "watch"]


def _stuck_for(view: ProcessView) -> float:
    """Return for how long the stream that is stuck longest has not moved."""
    since = [s.oldest_since for s in view.streams if s.oldest_since is not None]
    return view.tick - min(since, default=view.tick)


def _ranks(processes: Processes, view: ProcessView) -> list[str]:
    """Return what the ranks of the process's job are doing; save its own calls."""
    from npu_dispatch.ranks import all_ranks, flight_recorder

    reader = processes.reader(view)
    mine = flight_recorder.dump_of(reader) if reader else None
    if mine is None:
        return []
    if prefix := Config.read().flight_recorder_file:
        flight_recorder.save(mine, prefix)
    everybody = [d for d in all_ranks.from_segments() if d["pid"] != mine["pid"]]
    return all_ranks.report(all_ranks.job_of(mine, everybody))


def watch(pid: int, seconds: float) -> None:
    """Write a dump to stderr at each standstill of `pid`, until it ends.

    A standstill is reported once, `seconds` after the last progress.
    """
    reported = False
    with Processes(pid=pid) as processes:
        while not has_ended(pid):
            stuck = 0.0
            for view in processes.refresh():
                stuck = _stuck_for(view)
                if stuck >= seconds and not reported:
                    text = "\n".join([*dump_lines(view), *_ranks(processes, view)])
                    print(
                        f"npu_dispatch: no progress for {stuck:.1f} s\n{text}",
                        file=sys.stderr,
                        flush=True,
                    )
            reported = stuck >= seconds
            time.sleep(min(1.0, seconds / 4))


def start_watchdog(pid: int, seconds: float) -> None:
    """Watch `pid`, the calling process, from a helper that ends with it."""
    subprocess.Popen(
        own_python("-m", "npu_dispatch.diagnosis.watchdog", str(pid), str(seconds)),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the program
    )


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]))
