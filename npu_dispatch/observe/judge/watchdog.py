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

from npu_dispatch.config import Config, own_python
from npu_dispatch.observe.judge.calls import Dump, job_of
from npu_dispatch.observe.judge.describe import dump_lines
from npu_dispatch.observe.judge.verdict import stuck_for
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from npu_dispatch.observe.segment.system import has_ended


def _job(view: ProcessView) -> list[Dump]:
    """Return the dumps of a process's job, its own first; none of one without ranks."""
    from npu_dispatch.observe.judge.flight_recorder import from_segments

    everybody = from_segments()
    # Another container may have a process of this number, too.
    mine = [dump for dump in everybody if dump["process"]["id"] == view.id]
    return (
        [*mine, *(d for d in job_of(mine[0], everybody) if d not in mine)]
        if mine
        else []
    )


def _told(view: ProcessView, why: str) -> str:
    """Return a dump of a process and its job; save its calls where a file is named."""
    from npu_dispatch.observe.judge import flight_recorder, rank_verdict

    job, prefix = _job(view), Config.read().flight_recorder_file
    lines = [why, *dump_lines(view), *rank_verdict.report(job)]
    if job and prefix:
        try:
            flight_recorder.save(job[0], prefix)
        except OSError as error:
            lines.append(f"the flight recorder could not be saved: {error}")
    return "\n".join(lines)


def _slowness(view: ProcessView) -> str:
    """Return the verdict on a slow rank, which one rank says for all here."""
    from npu_dispatch.observe.judge.rank_verdict import slowness

    job = _job(view)
    lowest = job and job[0]["rank"] == min(dump["rank"] for dump in job)
    return slowness(job) if lowest else ""


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
            views = processes.refresh()
            for view in views:
                stuck = max((stuck_for(view, s) for s in view.streams), default=0.0)
                failures = sum(total.failed for total in view.totals)
                if failures > failed:
                    failed = failures
                    _say(_told(view, "a collective has failed"))
                elif stuck >= seconds and not reported:
                    _say(_told(view, f"no progress for {stuck:.1f} s"))
            reported = stuck >= seconds
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + seconds
                found = _slowness(views[0]) if views else ""
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
