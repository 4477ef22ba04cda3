"""Why the ranks of a job wait: in one sentence, and call by call of each group."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from npu_dispatch.observe.judge import calls
from npu_dispatch.words import age, counted, short, stream_title

_ALL_DONE = "every call has been done by all that made it"
_S = 1_000_000_000
# Ranks of a job that is well are never quite together.
_LATE_NS = 1 * _S
# When a frame of some hundred bytes has not arrived, no frame does.
_LOST_NS = 5 * _S
# Who samples its own place each second, and has not for so long, cannot.
_NO_PYTHON_NS = 3 * _S
# Of a rank for which the others wait time and again.
_FEWEST_CALLS = 5
_MOST_CALLS = 100  # the newest
_SPAN_NS = 10 * _S
_SHORTEST_NS = 3 * _S
_MOSTLY = 0.8  # of the calls
_SHARE = 0.2  # of the time


def verdict(job: list[calls.Dump]) -> str:
    """Return what keeps the ranks of a job apart, or "" where nothing does.

    What is certain comes before what is likely.
    """
    judge = _Job(list(map(calls.rank_of, job)))
    return next(
        filter(
            None,
            chain(
                map(judge.stopped, judge.ranks),
                map(judge.dead_launcher, judge.ranks),
                (judge.disagreement(*each) for each in judge.meetings),
                (judge.absence(*each) for each in judge.meetings),
                map(judge.silence, judge.groups),
                (judge.cut(*each) for each in judge.meetings),
                map(judge.slow, judge.groups),
            ),
        ),
        "",
    )


def slowness(job: list[calls.Dump]) -> str:
    """Return the verdict on a job whose ranks wait for the same one time and again."""
    judge = _Job(list(map(calls.rank_of, job)))
    return next(filter(None, map(judge.slow, judge.groups)), "")


class _Job:
    def __init__(self, job: list[calls.Rank]) -> None:
        self.ranks = {one.rank: one for one in job}
        self.groups = calls.groups_of(job)
        found = [(g, m) for g in self.groups if (m := g.meeting())]
        # A rank that waits in one group comes late to the others: the oldest first.
        self.meetings = sorted(
            found, key=lambda each: min(c.began_ns for c in each[1].there.values())
        )

    def _seen(self, rank: int) -> calls.Seen:
        return self.ranks[rank].process if rank in self.ranks else calls.Seen()

    def _since(self, rank: int, moment_ns: int) -> int:
        return self.ranks[rank].time_ns - moment_ns

    def _age(self, rank: int, moment_ns: int) -> str:
        return age(self._since(rank, moment_ns) / _S)

    def _name(self, rank: int) -> str:
        pid = self.ranks[rank].pid if rank in self.ranks else 0
        return f"rank {rank}" + (f" (process {pid})" if pid else "")

    def _last_call_ns(self, rank: int) -> int:
        calls = self.ranks[rank].entries
        return max((call.time_created_ns for call in calls), default=0)

    def _python(self, rank: int) -> str:
        """Say where a rank's main thread is."""
        seen = self._seen(rank)
        if not seen.line:
            return "where its Python is, is not known"
        # A rank that has called something meanwhile was elsewhere, and came back.
        since = max(seen.line_since_ns, self._last_call_ns(rank))
        if self._since(rank, since) < _S:
            return f"its Python is at {short(seen.line)}"
        return f"its Python has been at {short(seen.line)} for {self._age(rank, since)}"

    def stopped(self, rank: int) -> str:
        if not self._seen(rank).stopped:
            return ""
        return (
            f"{self._name(rank)} is stopped, by a signal or a debugger; its Python was "
            f"last seen at {short(self._seen(rank).line or '?')}"
        )

    def dead_launcher(self, rank: int) -> str:
        for one in self._seen(rank).streams:
            if one.dead:
                at = f", launched at {short(one.at)}," if one.at else ""
                return (
                    f"the launcher of {stream_title(*one.stream)} of "
                    f"{self._name(rank)} is dead: its thread is gone, and "
                    f"{one.runs or 'a task'}{at} never ends"
                )
        return ""

    def disagreement(self, group: calls.Group, meeting: calls.Meeting) -> str:
        meant = meeting.there[meeting.meant]
        for rank, text in meeting.wrong().items():
            if text == "different collectives" and self._swapped(group, rank, meeting):
                text = "the same collectives in another order"
            return (
                f"{self._name(rank)} calls {meeting.there[rank].text()} where "
                f"{self._name(meeting.meant)} calls {meant.text()}: {text}"
            )
        return ""

    def _swapped(self, group: calls.Group, rank: int, meeting: calls.Meeting) -> bool:
        """Return whether one of two ranks calls later what the other calls now."""
        of, there, meant = group.collectives(), meeting.there, meeting.meant
        return any(
            number > meeting.number and not calls.unlike(there[other], later)
            for one, other in ((meant, rank), (rank, meant))
            for number, later in of[one].items()
        )

    def _waiting(self, meeting: calls.Meeting) -> list[int]:
        """Return the ranks that have waited for long, the longest first."""
        found = {
            rank: self._since(rank, call.began_ns)
            for rank, call in meeting.there.items()
            if not call.is_done and not call.failed
        }
        late = [rank for rank, ns in found.items() if ns >= _LATE_NS]
        return sorted(late, key=lambda rank: -found[rank])

    def absence(self, group: calls.Group, meeting: calls.Meeting) -> str:
        waiting = self._waiting(meeting)
        # A rank that waits in another group's call is late because of others.
        elsewhere = {
            rank
            for _, other in self.meetings
            if other is not meeting
            for rank in self._waiting(other)
        }
        here = [rank for rank in meeting.absent if rank not in elsewhere]
        gone = [rank for rank in group.ranks if rank not in self.ranks]
        if not waiting or not here + gone:
            return ""
        rank, first = (here + gone)[0], waiting[0]
        call, since = (c := meeting.there[first]).text(), self._age(first, c.began_ns)
        cause = self._cause(rank) if here else "has no process here"
        if ends := [r for r in waiting if self._seen(r).exits]:
            return (
                f"{self._name(ends[0])} cannot end: its exit has been waiting for "
                f"{since} for {call}, which {self._name(rank)} has not called; the "
                f"latter {cause}"
            )
        return (
            f"{self._name(rank)} {cause}; it has not called {call}, in which "
            f"rank {first} has been waiting for {since}"
        )

    def silence(self, group: calls.Group) -> str:
        """Return the verdict on a message that has no other side."""
        for rank, call, silent in group.waiting_messages():
            late = self._since(rank, call.began_ns) >= _LATE_NS
            if silent >= 0 and late and not call.failed:
                return (
                    f"{self._name(silent)} {self._cause(silent)}; rank {rank} has been "
                    f"waiting for it for {self._age(rank, call.began_ns)} in "
                    f"{call.text(group.ranks)}"
                )
        return ""

    def _cause(self, rank: int) -> str:
        """Say why a rank does not come."""
        seen = self._seen(rank)
        if seen.seen_ns and self._since(rank, seen.seen_ns) >= _NO_PYTHON_NS:
            return (
                f"cannot run Python for {self._age(rank, seen.seen_ns)}, as a call "
                f"from, or after, {short(seen.line or '?')} holds the GIL"
            )
        if seen.in_loader:
            return f"loads data: {self._python(rank)}"
        if seen.oom_ns > self._last_call_ns(rank):
            ago = self._age(rank, seen.oom_ns)
            return f"ran out of device memory {ago} ago; {self._python(rank)}"
        return f"is elsewhere: {self._python(rank)}"

    def cut(self, group: calls.Group, meeting: calls.Meeting) -> str:
        """Return the verdict on a call that all have made, and that does not end."""
        waiting = self._waiting(meeting)
        if len(meeting.there) < len(group.ranks) or not waiting:
            return ""
        first, call = waiting[0], meeting.there[waiting[0]]
        text = f"{call.text()} for {self._age(first, call.began_ns)}"
        for rank, one in meeting.there.items():
            if one.state == "scheduled" and rank in waiting:
                busy = self._behind(rank, one)
                return f"{self._name(rank)} is busy{busy}; it has queued {text}"
        resent = {r: n for r in group.ranks if (n := self._seen(r).resent)}
        apart = [r for r in waiting if not meeting.there[r].all_here_ns]
        lost = self._since(first, call.began_ns) >= _LOST_NS
        if not resent and not (apart and lost):
            return ""  # the data may be large, or the machine busy
        ends = {*apart, *resent}
        ends = ends if len(ends) > 1 else set(group.ranks)
        again = counted(sum(resent.values()), "connection")
        return (
            f"the link between ranks {', '.join(map(str, sorted(ends)))} is cut: rank "
            f"{first} has been in {text}{f', {again} resent' if resent else ''}, and "
            "all have called it"
        )

    def _behind(self, rank: int, call: calls.Call) -> str:
        """Say what a stream does before it comes to a call."""
        streams = {one.stream: one for one in self._seen(rank).streams}
        at = call.stream
        for _ in streams:
            if at in streams and streams[at].held_by:
                at = streams[at].held_by
        if at not in streams:
            return ""
        one = streams[at]
        line = f" ({short(one.at)})" if one.at else ""
        does = f"runs {one.runs}{line}" if one.runs else "has not begun its oldest task"
        return f": {stream_title(*one.stream)} {does}"

    def slow(self, group: calls.Group) -> str:
        """Return the verdict on a rank that nearly always comes last.

        It costs the others time. A rank knows how long it waited for the last one, so
        the ranks' clocks do not matter.
        """
        of = group.collectives()
        if len(of) < 2:
            return ""
        newest = max(
            (c.ended_ns for calls in of.values() for c in calls.values()), default=0
        )
        shared = set.intersection(*(set(calls) for calls in of.values()))
        met = [
            {rank: calls[number] for rank, calls in of.items()}
            for number in sorted(shared)[-_MOST_CALLS:]
        ]
        met = [one for one in met if all(_is_told(c, newest) for c in one.values())]
        if len(met) < _FEWEST_CALLS:
            return ""
        waits = [{rank: _waited(call) for rank, call in one.items()} for one in met]
        last = [min(one, key=lambda rank: one[rank]) for one in waits]
        rank, late = Counter(last).most_common(1)[0]
        lost = sum(
            statistics.median(ns for other, ns in one.items() if other != rank)
            - one[rank]
            for one in waits
        )
        span = met[-1][rank].ended_ns - met[0][rank].time_created_ns
        if span < _SHORTEST_NS or late < _MOSTLY * len(met) or lost < _SHARE * span:
            return ""
        queued = sum(c.began_ns - c.time_created_ns for c in (one[rank] for one in met))
        # Its device may come late to what its host has called in time.
        by_device = f"its device has more to do before {met[-1][rank].text()}"
        cause = by_device if queued > lost / 2 else self._python(rank)
        return (
            f"{self._name(rank)} is slow: the others waited for it in {late} of "
            f"{counted(len(met), 'call')} of group '{group.name}', {lost / span:.0%} "
            f"of the last {age(span / _S)}; {cause}"
        )


def _is_told(call: calls.Call, newest: int) -> bool:
    known = call.all_here_ns and call.time_discovered_started_ns
    return call.is_done and bool(known) and newest - call.ended_ns < _SPAN_NS


def _waited(call: calls.Call) -> int:
    return call.all_here_ns - call.time_discovered_started_ns


def _collectives(group: calls.Group, ranks: dict[int, calls.Rank]) -> Iterator[str]:
    """Yield what ranks say of the first collective that not all have done."""
    meeting = group.meeting()
    if meeting is None:
        return
    number, of_others = meeting.number, meeting.wrong()
    wrong, absent = [], []
    for rank in group.ranks:
        call, name = meeting.there.get(rank), f"rank {rank}"
        if rank not in group.calls:
            absent.append(f"{name} has no process or dump here")
        elif rank in meeting.absent:
            last = meeting.last.get(rank)
            its_last = f"; its last was {last.text()}" if last else ""
            absent.append(f"{name} has not called #{number}{its_last}")
        elif call is None:
            wrong.append(f"{name} has done #{number}")
        elif rank in of_others:
            wrong.append(f"{name} is at {call.text()}: {of_others[rank]}")
        elif call.is_done:
            wrong.append(f"{name} has done {call.text()}")
        else:
            yield f"{name} {call.progress(ranks[rank].time_ns)} {call.text()}"
    yield from wrong
    yield from absent


def _messages(group: calls.Group, ranks: dict[int, calls.Rank]) -> Iterator[str]:
    """Yield the sends and recvs that wait, and whether the other side does."""
    for rank, call, silent in group.waiting_messages():
        state = call.progress(ranks[rank].time_ns)
        text = f"rank {rank} {state} {call.text(group.ranks)}"
        if silent >= 0:
            text += f"; rank {silent} has no {call.answer} for it"
        yield text


def report(dumps: list[calls.Dump]) -> list[str]:
    """Return lines that say who waits for what, and who does not, in each group."""
    lines = []
    for job in calls.jobs_of(dumps):
        ranks = {dump["rank"]: calls.rank_of(dump) for dump in job}
        pids = ", ".join(str(one.pid) for one in ranks.values() if one.pid)
        names = ", ".join(map(str, ranks))
        lines.append(f"job of ranks {names}" + (f" (processes {pids})" if pids else ""))
        if cause := verdict(job):
            lines.append(f"  verdict: {cause}")
        for group in calls.groups_of(list(ranks.values())):
            found = [*_collectives(group, ranks), *_messages(group, ranks)]
            lines.append(
                f"  group '{group.name}' of {counted(len(group.ranks), 'rank')}:"
            )
            lines += [f"    {line}" for line in found or [_ALL_DONE]]
    return lines
