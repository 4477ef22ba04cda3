"""Random operators: deterministic whatever the schedule, distributed as on cpu."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from host_waits import host_waits

from npu_dispatch.testing import explore
from tests.ecosystem.both import failed, in_threads
from tests.graphs.captured import captured

N = 20_000


def _offset():
    state = torch.npu.get_rng_state()
    return int.from_bytes(bytes(state.tolist())[8:], "little")


DRAWS = {
    "rand": lambda d: torch.rand(N, device=d),
    "randn": lambda d: torch.randn(N, device=d),
    "randint": lambda d: torch.randint(0, 50, (N,), device=d),
    "normal": lambda d: torch.empty(N, device=d).normal_(2, 3),
    "uniform": lambda d: torch.empty(N, device=d).uniform_(-1, 2),
    "exponential": lambda d: torch.empty(N, device=d).exponential_(2),
    "log_normal": lambda d: torch.empty(N, device=d).log_normal_(0.1, 0.4),
    "cauchy": lambda d: torch.empty(N, device=d).cauchy_(),
    "geometric": lambda d: torch.empty(N, device=d).geometric_(0.3),
    "bernoulli": lambda d: torch.full((N,), 0.3, device=d).bernoulli(),
    "binomial": lambda d: torch.binomial(
        torch.full((N,), 9.0, device=d), torch.full((N,), 0.4, device=d)
    ),
    "poisson": lambda d: torch.poisson(torch.full((N,), 3.0, device=d)),
    "gamma": lambda d: torch._standard_gamma(torch.full((N,), 1.5, device=d)),
    "dirichlet": lambda d: torch._sample_dirichlet(torch.ones(N, 3, device=d))[:, 0],
    "multinomial": lambda d: torch.multinomial(
        torch.tensor([0.1, 0.2, 0.7], device=d), N, replacement=True
    ),
    "dropout": lambda d: F.dropout(torch.ones(N, device=d), 0.3),
    "randperm": lambda d: torch.randperm(N, device=d),
    "rrelu": lambda d: F.rrelu(-torch.ones(N, device=d), training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_has_cpus_distribution_repeats_with_its_seed_and_moves_the_state(name):
    draws = []
    for _ in range(2):
        torch.manual_seed(1)
        draws.append((DRAWS[name]("npu"), _offset(), DRAWS[name]("npu")))
    (first, moved, second), (again, moved_again, _) = draws
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert moved == moved_again > 0

    # The two-sample Kolmogorov-Smirnov statistic, at a level of 1e-6.
    on_cpu = DRAWS[name]("cpu").double().sort()[0]
    on_npu = first.cpu().double().sort()[0]

    points = torch.cat([on_cpu, on_npu])
    steps = [torch.searchsorted(s, points, right=True) / N for s in (on_cpu, on_npu)]
    assert (steps[0] - steps[1]).abs().max() < 2.7 * (2 / N) ** 0.5


# The larger one is tried as a smaller call.
@pytest.mark.parametrize("categories", [31, 60_000])
def test_weights_are_not_waited_for_the_first_time_either(categories):
    """A run on zeros, which tells the kinds of other calls, says nothing of weights."""
    weights = F.one_hot(torch.arange(3), categories).float().npu()
    drawn = []

    assert not host_waits(lambda: drawn.append(torch.multinomial(weights, 1)))

    assert torch.equal(drawn[0].cpu(), torch.arange(3)[:, None])


def test_numbers_do_not_depend_on_the_schedule():
    def program():
        torch.manual_seed(5)
        side = torch.npu.Stream()
        a = torch.rand(8, device="npu")
        with torch.npu.stream(side):
            b = F.dropout(torch.ones(8, device="npu"), 0.5)
        c = torch.randn(8, device="npu")
        torch.npu.current_stream().wait_stream(side)
        return a, b, c, torch.npu.get_rng_state()

    assert len({run.trace for run in explore(program, schedules=20)}) > 1


def test_a_generator_per_thread_is_deterministic():
    def draw(seed, results):
        generator = torch.Generator("npu").manual_seed(seed)
        with torch.npu.stream(torch.npu.Stream()):
            drawn = [
                torch.rand(100, device="npu", generator=generator) for _ in range(20)
            ]
            results[seed] = torch.cat(drawn).tolist()

    def run():
        results = {}
        in_threads(*(partial(draw, s, results) for s in range(4)))
        return results

    assert run() == run()


def test_dropout_in_a_captured_graph_advances_the_state():
    x = torch.ones(1000).npu()
    F.dropout(x)
    graph, y = captured(lambda: F.dropout(x))

    torch.manual_seed(7)
    results, offsets = [], [_offset()]
    for _ in range(3):
        graph.replay()
        results.append(y.clone())
        offsets.append(_offset())
    results.append(F.dropout(x))
    torch.manual_seed(7)
    eager = [F.dropout(x) for _ in range(4)]

    assert offsets == sorted(set(offsets)), "each replay takes numbers of its own"
    for replayed, plain in zip(results, eager, strict=True):
        assert torch.equal(replayed, plain)


def generator(seed=0):
    return torch.Generator("npu").manual_seed(seed)


def draw(g, n=4):
    return torch.rand(n, generator=g, device="npu").tolist()


def test_a_state_is_shared_and_a_clone_is_not():
    first = generator()
    shared, cloned = first.graphsafe_get_state(), first.clone_state()

    numbers = draw(first), draw(shared)
    alone = generator()

    assert numbers == (draw(alone), draw(alone))
    assert first.get_offset() == shared.get_offset() == 8
    assert draw(cloned) == numbers[0]


def test_generators_take_turns_with_states_as_trackers_do():
    default, other = generator(1), generator(2)
    states = {"default": default.graphsafe_get_state(), "other": other}

    def fork(name):
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(states[name])
        try:
            return draw(default)
        finally:
            default.graphsafe_set_state(before)

    found = [fork("other"), draw(default), fork("other"), fork("default")]

    one, two = generator(1), generator(2)
    assert found == [draw(two), draw(one), draw(two), draw(one)]


def test_a_capture_may_choose_states_and_a_replay_continues_each():
    default, other = generator(1), generator(2)
    state = default.graphsafe_get_state()
    graph = torch.npu.NPUGraph()
    graph.register_generator_state(other)
    draw(default), draw(other)

    def drawn():
        a = torch.rand(4, generator=default, device="npu")
        default.graphsafe_set_state(other)
        b = torch.rand(4, generator=default, device="npu")
        default.graphsafe_set_state(state)
        return a, b, torch.rand(4, generator=default, device="npu")

    with torch.npu.graph(graph):
        numbers = drawn()

    one, two = generator(1), generator(2)
    draw(one), draw(two)
    for _ in range(3):
        graph.replay()
        replayed = [t.tolist() for t in numbers]
        assert replayed == [draw(one), draw(two), draw(one)]


def test_threads_that_share_a_state_draw_different_numbers():
    shared = [generator().graphsafe_get_state()]
    shared += [shared[0].graphsafe_get_state() for _ in range(3)]
    found = []

    def draws(g):
        found.extend(draw(g, 2) for _ in range(50))

    in_threads(*(partial(draws, g) for g in shared))

    alone = generator()
    assert sorted(found) == sorted(draw(alone, 2) for _ in range(200))


def test_a_state_of_another_device_is_refused():
    with pytest.raises(TypeError, match="needs a generator of npu"):
        generator().graphsafe_set_state(torch.Generator("cpu"))
    with pytest.raises(IndexError, match="no device 99"):
        torch.Generator("npu:99")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: torch.normal(0.0, torch.tensor([-1.0]).npu()), "std >= 0"),
        (lambda: torch.bernoulli(torch.tensor([2.0]).npu()), "p_in <= 1"),
    ],
)
def test_values_that_only_the_kernel_sees_are_refused_where_the_program_waits(
    call, said
):
    call()

    failed(torch.npu.DeviceError, said)
