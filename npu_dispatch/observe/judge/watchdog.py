"""What a process's streams and host threads are doing, read from outside.

The process need not do anything for it, so it may hang, with or without the GIL.
`python -m npu_dispatch.observe.judge.watchdog PID SECONDS` watches a process until
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
from npu_dispatch.observe.judge.describe import dump_lines
from npu_dispatch.observe.segment.collective_totals import read_totals
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.proc_stat import has_ended
from npu_dispatch.own_python import own_python

__all__ = ["start_watchdog", "watch"]


def _stuck_for(view: ProcessView) -> float:
    """Return for how long the stream that is stuck longest has not moved."""
    since = [s.oldest_since for s in view.streams if s.oldest_since is not None]
    return view.tick - min(since, default=view.tick)


class _Job:
    """The job of a process that is a rank, as it is now."""

    def __init__(self, pid: int) -> None:
        from npu_dispatch.observe.judge import all_ranks, calls

        everybody = all_ranks.from_segments()
        mine = [dump for dump in everybody if dump["pid"] == pid]
        self.mine = mine[0] if mine else None
        self.ranks = calls.job_of(mine[0], everybody) if mine else []

    def save(self) -> None:
        """Save the process's own calls where TORCH_FR_DUMP_TEMP_FILE says."""
        from npu_dispatch.observe.judge import flight_recorder

        prefix = Config.read().flight_recorder_file
        if self.mine and prefix:
            flight_recorder.save(self.mine, prefix)

    def report(self) -> list[str]:
        from npu_dispatch.observe.judge import all_ranks

        return all_ranks.report(self.ranks)

    def slowness(self) -> str:
        """Return the verdict on a slow rank, which one rank says for all here."""
        from npu_dispatch.observe.judge import rank_verdict as verdict

        if not self.mine or self.mine["rank"] != self.ranks[0]["rank"]:
            return ""
        return verdict.slowness(self.ranks)


def _failed_calls(processes: Processes, view: ProcessView) -> int:
    reader = processes.reader(view)
    totals = read_totals(*reader.behind()) if reader else ()
    return sum(total.failed for total in totals)


def _say(text: str) -> None:
    print(f"npu_dispatch: {text}", file=sys.stderr, flush=True)


def watch(pid: int, seconds: float) -> None:
    """Write a dump to stderr at each standstill of `pid`, until it ends.

    A standstill is reported once, `seconds` after the last progress; a collective
    that failed, and a rank for which the others wait again and again, as soon as it
    is seen.
    """
    reported, failed, slow = False, 0, ""
    look_at = time.monotonic() + seconds
    with Processes(pid=pid) as processes:
        while not has_ended(pid):
            stuck = 0.0
            for view in processes.refresh():
                stuck = _stuck_for(view)
                failures = _failed_calls(processes, view)
                why = f"no progress for {stuck:.1f} s"
                if failures > failed:
                    why, failed = "a collective has failed", failures
                elif stuck < seconds or reported:
                    continue
                job = _Job(pid)
                job.save()
                _say("\n".join([why, *dump_lines(view), *job.report()]))
            reported = stuck >= seconds
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + seconds
                found = _Job(pid).slowness()
                who = found.partition(" is slow")[0]
                if found and who != slow:
                    _say(found)
                slow = who
            time.sleep(min(1.0, seconds / 4))


def start_watchdog(pid: int, seconds: float) -> None:
    """Watch `pid`, the calling process, from a helper that ends with it."""
    subprocess.Popen(
        own_python("-m", "npu_dispatch.observe.judge.watchdog", str(pid), str(seconds)),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the program
    )


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]))
