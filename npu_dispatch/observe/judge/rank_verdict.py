"""Why the ranks of a job wait, in one sentence: which rank, which cause, which line."""

from __future__ import annotations

from typing import Any

from npu_dispatch.observe.judge.calls import (
    Entry,
    Group,
    Meeting,
    age,
    groups_of,
    meeting_of,
    unlike,
    waiting_messages,
    what,
)
from npu_dispatch.observe.judge.flight_recorder import Dump
from npu_dispatch.observe.judge.slow_rank import slow_rank
from npu_dispatch.observe.segment.sites import short
from npu_dispatch.stream_names import stream_title

__all__ = ["slowness", "verdict"]

_S = 1_000_000_000
# Ranks of a job that is well are never quite together.
_LATE_NS = 1 * _S
# When a frame of some hundred bytes has not arrived, no frame does.
_LOST_NS = 5 * _S
# Who samples its own place each second, and has not for so long, cannot.
_NO_PYTHON_NS = 3 * _S


def verdict(job: list[Dump]) -> str:
    """Return what keeps the ranks of a job apart, or "" where nothing does.

    What is certain comes before what is likely.
    """
    judge = _Job(job)
    return next(
        filter(
            None,
            (
                *map(judge.stopped, judge.dumps),
                *map(judge.dead_launcher, judge.dumps),
                *(judge.disagreement(*each) for each in judge.meetings),
                *(judge.absence(*each) for each in judge.meetings),
                *(judge.silence(group) for group in judge.groups),
                *(judge.cut(*each) for each in judge.meetings),
                *(judge.slow(group) for group in judge.groups),
            ),
        ),
        "",
    )


def slowness(job: list[Dump]) -> str:
    """Return the verdict on a job whose ranks wait for the same one time and again."""
    judge = _Job(job)
    return next(filter(None, map(judge.slow, judge.groups)), "")


def _began(entry: Entry) -> int:
    return int(entry["time_discovered_started_ns"] or entry["time_created_ns"])


def _title(stream: list[int]) -> str:
    return stream_title(stream[0], stream[1])


class _Job:
    def __init__(self, job: list[Dump]) -> None:
        self.dumps = {dump["rank"]: dump for dump in job}
        self.groups = list(groups_of(job))
        found = [(g, m) for g in self.groups if (m := meeting_of(g))]
        # A rank that waits in one group comes late to the others: the oldest first.
        self.meetings = sorted(
            found, key=lambda each: min(map(_began, each[1].there.values()))
        )

    def _seen(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = self.dumps[rank].get("process") or {}
        return found

    def _now(self, rank: int) -> int:
        return int(self.dumps[rank].get("time_ns", 0))

    def _name(self, rank: int) -> str:
        pid = self.dumps[rank].get("pid") if rank in self.dumps else None
        return f"rank {rank}" + (f" (process {pid})" if pid else "")

    def _python(self, rank: int) -> str:
        """Say where a rank's main thread is."""
        seen = self._seen(rank)
        if not seen.get("line"):
            return "where its Python is, is not known"
        # A rank that has called something meanwhile was elsewhere, and came back.
        called = (entry["time_created_ns"] for entry in self.dumps[rank]["entries"])
        ns = self._now(rank) - max(seen["line_since_ns"], *called, 0)
        since = f" since {ns / _S:.0f} s" if ns >= _S else ""
        return f"its Python is at {short(seen['line'])}{since}"

    def stopped(self, rank: int) -> str:
        if not self._seen(rank).get("stopped"):
            return ""
        return (
            f"{self._name(rank)} is stopped, by a signal or a debugger; its Python was "
            f"last seen at {short(self._seen(rank).get('line', '?'))}"
        )

    def dead_launcher(self, rank: int) -> str:
        for stream in self._seen(rank).get("streams", ()):
            if stream.get("dead"):
                at = f", launched at {short(stream['at'])}," if stream["at"] else ""
                return (
                    f"the launcher of {_title(stream['stream'])} of {self._name(rank)} "
                    f"is dead: its thread is gone, and {stream['runs'] or 'a task'}"
                    f"{at} never ends"
                )
        return ""

    def disagreement(self, group: Group, meeting: Meeting) -> str:
        meant = meeting.there[meeting.meant]
        for rank, text in meeting.wrong().items():
            mine = meeting.there[rank]
            if text == "different collectives" and self._swapped(group, rank, meeting):
                text = "the same collectives in another order"
            return (
                f"{self._name(rank)} calls {what(mine)} where "
                f"{self._name(meeting.meant)} calls {what(meant)}: {text}"
            )
        return ""

    def _swapped(self, group: Group, rank: int, meeting: Meeting) -> bool:
        """Return whether one of two ranks calls later what the other calls now."""

        def later(of: int, call: Entry) -> bool:
            return any(
                not e["is_p2p"]
                and e["collective_seq_id"] > meeting.number
                and not unlike(call, e)
                for e in group.calls[of]
            )

        there, meant = meeting.there, meeting.meant
        return later(meant, there[rank]) or later(rank, there[meant])

    def _waiting(self, meeting: Meeting) -> list[int]:
        """Return the ranks that have waited for long, the longest first."""
        found = {
            rank: self._now(rank) - _began(entry)
            for rank, entry in meeting.there.items()
            if entry["state"] != "completed" and not entry.get("failed")
        }
        late = [rank for rank, ns in found.items() if ns >= _LATE_NS]
        return sorted(late, key=lambda rank: -found[rank])

    def absence(self, group: Group, meeting: Meeting) -> str:
        waiting = self._waiting(meeting)
        # A rank that waits in another group's call is late because of others.
        elsewhere = {
            rank
            for _, other in self.meetings
            if other is not meeting
            for rank in self._waiting(other)
        }
        here = [rank for rank in meeting.absent if rank not in elsewhere]
        gone = [rank for rank in group.ranks if rank not in self.dumps]
        if not waiting or not here + gone:
            return ""
        entry, rank = meeting.there[waiting[0]], (here + gone)[0]
        ends = [r for r in waiting if self._seen(r).get("exits")]
        cause = self._cause(rank) if here else "has no process here"
        if ends:
            return (
                f"{self._name(ends[0])} cannot end: its exit waits since "
                f"{age(entry, self._now(waiting[0]))} for {what(entry)}, which "
                f"{self._name(rank)} has not called; the latter {cause}"
            )
        return (
            f"{self._name(rank)} {cause}; it has not called {what(entry)}, in which "
            f"rank {waiting[0]} waits since {age(entry, self._now(waiting[0]))}"
        )

    def silence(self, group: Group) -> str:
        """Return the verdict on a message that has no other side."""
        for rank, entry, silent in waiting_messages(group):
            ns = self._now(rank) - _began(entry)
            if silent >= 0 and ns >= _LATE_NS and not entry.get("failed"):
                return (
                    f"{self._name(silent)} {self._cause(silent)}; rank {rank} waits "
                    f"for it since {ns / _S:.0f} s in {what(entry, group.ranks)}"
                )
        return ""

    def _cause(self, rank: int) -> str:
        """Say why a rank does not come."""
        seen, now = self._seen(rank), self._now(rank)
        last = max(
            (e["time_created_ns"] for e in self.dumps[rank]["entries"]), default=0
        )
        if seen.get("seen_ns") and now - seen["seen_ns"] >= _NO_PYTHON_NS:
            ns = now - seen["seen_ns"]
            return (
                f"cannot run Python for {ns / _S:.0f} s, as somebody holds the GIL: a "
                f"call from, or after, {short(seen.get('line', '?'))}"
            )
        if seen.get("in_loader"):
            return f"loads data: {self._python(rank)}"
        if seen.get("oom_ns", 0) > last:
            return (
                "ran out of device memory "
                f"{(now - seen['oom_ns']) / _S:.0f} s ago; {self._python(rank)}"
            )
        return f"is elsewhere: {self._python(rank)}"

    def cut(self, group: Group, meeting: Meeting) -> str:
        """Return the verdict on a call that all have made, and that does not end."""
        waiting = self._waiting(meeting)
        if len(meeting.there) < len(group.ranks) or not waiting:
            return ""
        entry = meeting.there[waiting[0]]
        text = f"{what(entry)} for {age(entry, self._now(waiting[0]))}"
        for rank, one in meeting.there.items():
            if one["state"] == "scheduled" and rank in waiting:
                behind = self._behind(rank, one)
                return f"{self._name(rank)} {behind}; it has queued {text}"
        resent = {r: n for r in group.ranks if (n := self._seen(r).get("resent", 0))}
        apart = [r for r in waiting if not meeting.there[r].get("all_here_ns")]
        ns = self._now(waiting[0]) - _began(entry)
        if not resent and (not apart or ns < _LOST_NS):
            return ""  # the data may be large, or the machine busy
        ends = {*apart, *resent}
        ends = ends if len(ends) > 1 else set(group.ranks)
        again = f"; {sum(resent.values())} connections send again" if resent else ""
        return (
            f"the link between ranks {', '.join(map(str, sorted(ends)))} is cut: rank "
            f"{waiting[0]} is in {text}{again}, and all have called it"
        )

    def _behind(self, rank: int, entry: Entry) -> str:
        """Say what a stream does before it comes to a call."""
        streams = {
            tuple(one["stream"]): one for one in self._seen(rank).get("streams", ())
        }
        at = tuple(entry.get("stream", ()))
        for _ in streams:
            if at in streams and streams[at]["held_by"]:
                at = tuple(streams[at]["held_by"])
        if at not in streams:
            return "is busy"
        one = streams[at]
        line = f" ({short(one['at'])})" if one["at"] else ""
        return f"is busy: {_title(one['stream'])} runs {one['runs'] or 'a task'}{line}"

    def slow(self, group: Group) -> str:
        found = slow_rank(group)
        if found is None:
            return ""
        text = (
            f"{self._name(found.rank)} is slow: the others waited for it in "
            f"{found.late} of {found.calls} calls of group '{group.name}', "
            f"{found.share:.0%} of the last {found.span_ns / _S:.0f} s; "
        )
        if found.by_device:
            return f"{text}its device has more to do before {what(found.entry)}"
        return text + self._python(found.rank)
