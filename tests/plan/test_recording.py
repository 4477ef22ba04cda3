"""What is made of a recording: quiet steps, repeated steps, faster devices."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from npu_dispatch import _C
from npu_dispatch.plan.simulate import ENTRY, Act, Recording, Simulation
from npu_dispatch.plan.spec import Spec, load

US = 1000
KERNEL = 2 * US  # of the spec


def entry(act: Act, host_ns: int = 0, **fields: int) -> np.ndarray:
    made = np.zeros(1, ENTRY)
    made["act"], made["host_ns"] = act, host_ns
    for name, value in fields.items():
        made[name] = value
    return made


def recording(steps: list[list[np.ndarray]], works: list[tuple]) -> Recording:
    program = _C.PlanProgram([(0, 0, 0), (0, 1, 0)], works)
    parts = [np.concatenate([*step, entry(Act.STEP)]) for step in steps]
    return Recording(program, np.concatenate(parts), len(steps))


@pytest.fixture(scope="module")
def device(spec) -> Spec:
    """1 GB/s, 1 TFLOP/s; each task takes 2 µs beside its work."""
    return load(spec(launch=0, kernel=2, link=1))


def launches(host_ns: int, n: int = 5, what: int = 0) -> list[np.ndarray]:
    return [entry(Act.LAUNCH, host_ns, what=what) for _ in range(n)]


def test_what_else_the_machine_did_does_not_count() -> None:
    """Half of the steps are disturbed, each at other places."""
    rng = np.random.default_rng(0)
    steps = []
    for i in range(40):
        step = launches(100 * US, 10)
        for place in rng.choice(10, 3, replace=False) if i % 2 else ():
            step[place]["host_ns"] += int(rng.integers(50, 5000)) * US
        steps.append(step)

    quiet, usual = recording(steps, [("kernel", 0, 0)]).quiet()

    assert set(quiet.entries["host_ns"]) == {100 * US, 0}
    assert usual > 1


def test_a_step_that_does_something_else_keeps_its_own_time() -> None:
    """Each fifth step has a launch more, as where gradients are accumulated."""
    steps = [launches(100 * US, 6 if i % 5 == 4 else 5) for i in range(50)]
    steps[4][5]["host_ns"] = 900 * US  # the first of these
    program = recording(steps, [("kernel", 0, 0)])

    quiet, _ = program.quiet()

    lengths = [len(step) for step in quiet.steps()]
    assert lengths == [7 if i % 5 == 4 else 6 for i in range(50)]
    assert quiet.entries["host_ns"].sum() == (50 * 5 + 10) * 100 * US


def test_few_steps_are_taken_as_they_are() -> None:
    steps = [launches(i * US) for i in (100, 200, 300)]
    quiet, usual = recording(steps, [("kernel", 0, 0)]).quiet()
    assert quiet.entries["host_ns"].sum() == 5 * 600 * US
    assert usual == 1


def test_steps_begin_when_queues_are_full(device: Spec) -> None:
    """The host is 100 times as fast: it fills the queue, then waits for room."""
    program = recording([launches(20, 1000)], [("kernel", 0, 0)])
    assert Simulation(program, device).step_ns() == pytest.approx(1000 * KERNEL)
    run = Simulation(program, device).run(lambda _: "line")
    assert max(task.depth for task in run.tasks) == 8192
    assert {wait.reason for wait in run.waits} == {"full_queue"}


def test_names_lines_and_streams_are_those_of_the_program(device: Spec) -> None:
    step = [
        entry(Act.LAUNCH, 10, what=0, site=3),
        entry(Act.STREAM_WAIT, 10, stream=1, other=0, amount=0),
        entry(Act.LAUNCH, 10, stream=1, what=1, site=4),
        entry(Act.HOST_WAIT, 10, other=1, what=0, site=5),
    ]
    program = recording([step], [("kernel", 0, 1000), ("copy", 0, 500)])
    run = Simulation(program, device).run(lambda site: f"line {site}")
    kernel, wait, copy = run.tasks[-3:]
    assert (kernel.where, copy.where) == ("line 3", "line 4")
    assert wait.after == (kernel.stream, kernel.number) and not wait.runs
    assert copy.started == kernel.ended == wait.ended
    assert kernel.ended - kernel.started == KERNEL + 1000
    assert copy.ended - copy.started == 500
    (host,) = run.waits[-1:]
    assert (host.reason, host.where, host.ended) == ("item", "line 5", copy.ended)


WORKS = [("kernel", 1e6, 100.0), ("kernel", 0.0, 5000.0), ("copy", 0.0, 900.0)]
ENTRIES = st.one_of(
    st.tuples(st.just("launch"), st.integers(0, 3000), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.integers(0, 3000), st.integers(0, 2)),
)


def one_stream(rows: list[tuple[str, int, int]]) -> Recording:
    step = [
        entry(Act.LAUNCH, host, what=n)
        if kind == "launch"
        else entry(Act.HOST_WAIT, host, amount=n)
        for kind, host, n in rows
    ]
    return recording([[*launches(1, 1), *step]], WORKS)


@given(st.lists(ENTRIES, max_size=30), st.floats(1.0, 8.0))
@settings(max_examples=150, derandomize=True, database=None, deadline=None)
def test_what_is_faster_never_takes_longer(device, rows, factor) -> None:
    program = one_stream(rows)
    plain = Simulation(program, device).step_ns() + 1  # rounded to ns

    assert Simulation(program, device).step_ns(host=factor) <= plain
    assert Simulation(program, device).step_ns(device=factor) <= plain
    assert Simulation(program, device).step_ns(work=factor) + 1 >= plain - 1
    both = Simulation(program, device).step_ns(host=factor, device=factor)
    # Where everything is so many times as fast, the time is so many times shorter.
    assert both == pytest.approx(plain / factor, rel=0.02, abs=40 * len(rows) + 40)


@given(st.lists(ENTRIES, min_size=1, max_size=30))
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_a_step_takes_no_less_than_each_of_its_parts(device, rows) -> None:
    program = one_stream(rows)
    host = int(program.entries["host_ns"].sum())
    run = Simulation(program, device).run(lambda _: "")
    first, last = run.boundaries[0], run.boundaries[-1]
    work = sum(t.ended - t.started for t in run.tasks if t.submitted > first)
    assert last - first >= host
    assert Simulation(program, device).step_ns() >= max(host, work) - 1
    assert Simulation(program, device).step_ns() <= host + work + 1
