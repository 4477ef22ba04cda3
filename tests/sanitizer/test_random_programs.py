"""Random programs of several streams, against two independent references.

What each operator computes is worked out by an interpreter on numpy arrays that
knows no streams; whether an access follows all it conflicts with, by sets of
"what is done before this". An ordered program must give the former's values
under any interleaving and no report; any other must be stopped at its first
unordered step.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sanitizer_off import sanitizer_off

from npu_dispatch.npu import _sanitizer
from npu_dispatch.testing import schedule

STREAMS, TENSORS, EVENTS, SIZE = 3, 4, 2, 8
PARTS = {
    "all": slice(0, 8),
    "low": slice(0, 4),
    "high": slice(4, 8),
    "even": slice(0, 8, 2),
    "odd": slice(1, 8, 2),
}
EXAMPLES = settings(max_examples=4 * settings.default.max_examples)
pytestmark = pytest.mark.timeout(180 + 1.5 * settings.default.max_examples)


@dataclass(frozen=True)
class Step:
    """One line of a program; `stream` launches it."""

    kind: str
    stream: int = 0
    a: int = 0  # a tensor, an event or a stream
    b: int = 0
    part: str = "all"


streams, tensors, events = (st.integers(0, n - 1) for n in (STREAMS, TENSORS, EVENTS))
parts = st.sampled_from(list(PARTS))
LAUNCHES = st.one_of(
    st.builds(Step, st.just("scale"), streams, tensors, part=parts),
    st.builds(Step, st.just("add"), streams, tensors, tensors, parts),
    st.builds(
        # Of another tensor: some copies onto themselves are left out.
        lambda stream, a, distance, part: Step(
            "copy", stream, a, (a + distance) % TENSORS, part
        ),
        *(streams, tensors, st.integers(1, TENSORS - 1), parts),
    ),
    st.builds(Step, st.just("replace"), streams, tensors),
    st.builds(Step, st.just("read"), streams, tensors, part=parts),
)
ORDERS = st.one_of(
    st.builds(Step, st.just("record"), streams, events),
    st.builds(Step, st.just("wait_event"), streams, events),
    st.builds(Step, st.just("wait_stream"), streams, streams),
    st.builds(Step, st.just("sync_stream"), streams),
    st.builds(Step, st.just("sync_event"), a=events),
    st.just(Step("sync_device")),
)
PROGRAMS = st.lists(st.one_of(LAUNCHES, LAUNCHES, ORDERS), min_size=4, max_size=24)


def expected(program: list[Step]) -> list[float]:
    """Return what the program reads, and its tensors' values at the end."""
    values = [np.full(SIZE, i + 1.0, np.float32) for i in range(TENSORS)]
    read: list[float] = []
    for number, step in enumerate(program):
        part = PARTS[step.part]
        if step.kind == "scale":
            values[step.a][part] = values[step.a][part] * 2 % 1024
        elif step.kind == "add":
            total = values[step.a][part] + values[step.b][part] + 1
            values[step.a][part] = total % 1024
        elif step.kind == "copy":
            values[step.a][part] = values[step.b][part]
        elif step.kind == "replace":
            values[step.a] = np.full(SIZE, number, np.float32)
        elif step.kind == "read":
            read.append(float(values[step.a][part][0]))
    return read + [float(v) for value in values for v in value]


def accesses(step: Step) -> list[tuple[int, set[int], bool]]:
    """Return tensor, elements and whether it writes them, of each argument."""
    elements = set(range(SIZE)[PARTS[step.part]])
    if step.kind == "read":
        return [(step.a, {min(elements)}, False)]
    if step.kind == "scale":
        return [(step.a, elements, True)]
    if step.kind in ("add", "copy"):
        return [(step.a, elements, True), (step.b, elements, False)]
    return []


def first_race(program: list[Step]) -> tuple[int, int] | None:
    """Return the first unordered step, and the stream that it should wait for."""
    # The steps done before whatever follows this stream, event or the host.
    done: defaultdict[Any, set[int]] = defaultdict(set)
    made = dict.fromkeys(range(TENSORS), -1)  # the step that made each tensor
    past: list[tuple[int, tuple[int, int], set[int], bool]] = []
    for number, step in enumerate(program):
        before = done["stream", step.stream] | done["host"]
        after = before | {number}
        if step.kind == "record":
            done["event", step.a] = before
        elif step.kind == "wait_event":
            after |= done["event", step.a]
        elif step.kind == "wait_stream":
            after |= done["stream", step.a]
        elif step.kind == "sync_event":
            done["host"] |= done["event", step.a]
            continue
        elif step.kind == "sync_device":
            done["host"] |= set(range(number))
            continue
        elif step.kind == "replace":
            made[step.a] = number
            past.append((number, (step.a, number), set(range(SIZE)), True))
        for tensor, elements, writes in accesses(step):
            for old, block, others, wrote in past:
                if (
                    block == (tensor, made[tensor])
                    and elements & others
                    and (writes or wrote)
                    and old not in before
                ):
                    return number, program[old].stream
        past += [(number, (t, made[t]), e, w) for t, e, w in accesses(step)]
        done["stream", step.stream] = after
        if step.kind in ("sync_stream", "read"):
            done["host"] |= after
    return None


def ordered(program: list[Step]) -> list[Step]:
    """Add the waits that the program lacks, and no others."""
    program = list(program)
    while (race := first_race(program)) is not None:
        number, other = race
        program.insert(number, Step("wait_stream", program[number].stream, other))
    return program


def run(program: list[Step], each: Callable[[int], None] = lambda _: None) -> Any:
    """Run it on the device; `each` is told of every step about to begin."""
    lanes = [torch.npu.default_stream(), torch.npu.Stream(), torch.npu.Stream()]
    marks = [torch.npu.Event() for _ in range(EVENTS)]
    x = [torch.full((SIZE,), i + 1.0, device="npu") for i in range(TENSORS)]
    torch.npu.synchronize()
    read: list[float] = []
    for number, step in enumerate(program):
        each(number)
        lane, part = lanes[step.stream], PARTS[step.part]
        with torch.npu.stream(lane):
            match step.kind:
                case "scale":
                    x[step.a][part].mul_(2).remainder_(1024)
                case "add":
                    total = x[step.a][part]
                    total.add_(x[step.b][part]).add_(1).remainder_(1024)
                case "copy":
                    x[step.a][part].copy_(x[step.b][part])
                case "replace":
                    for user in lanes:
                        x[step.a].record_stream(user)
                    x[step.a] = torch.full((SIZE,), float(number), device="npu")
                case "read":
                    read.append(x[step.a][part][0].item())
                case "record":
                    marks[step.a].record(lane)
                case "wait_event":
                    lane.wait_event(marks[step.a])
                case "wait_stream":
                    lane.wait_stream(lanes[step.a])
                case "sync_stream":
                    lane.synchronize()
                case "sync_event":
                    marks[step.a].synchronize()
                case "sync_device":
                    torch.npu.synchronize()
    torch.npu.synchronize()
    return read + [v for t in x for v in t.tolist()]


def stopped_at(program: list[Step]) -> int | None:
    """Return the step that the sanitizer refuses."""
    at = -1

    def note(number: int) -> None:
        nonlocal at
        at = number

    _sanitizer.enable_npu_sanitizer("raise")
    try:
        run(program, note)
    except _sanitizer.NPUSanitizerErrors:
        return at
    else:
        return None
    finally:
        torch.npu.synchronize()


@pytest.fixture(autouse=True, scope="module")
def sanitizer_as_before():
    with sanitizer_off():
        yield


@EXAMPLES
@given(PROGRAMS)
def test_a_program_is_stopped_at_its_first_unordered_step(program: list[Step]):
    race = first_race(program)

    assert stopped_at(program) == (race[0] if race else None)


@EXAMPLES
@given(PROGRAMS, st.integers(0, 2**32))
def test_an_ordered_program_gives_the_same_values_however_it_runs(
    program: list[Step], seed: int
):
    program = ordered(program)
    values = expected(program)

    assert stopped_at(program) is None
    _sanitizer.disable_npu_sanitizer()
    assert run(program) == values
    for number in range(1, 4):
        with schedule(seed + number, length=4 * len(program)):
            assert run(program) == values
