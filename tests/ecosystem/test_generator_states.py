"""States that generators share: torch.Generator.graphsafe_get_state, as on CUDA."""

from __future__ import annotations

import threading

import pytest
import torch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator("npu").manual_seed(seed)


def draw(g: torch.Generator, n: int = 4) -> list[float]:
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

    def fork(name: str) -> list[float]:
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
    torch.rand(4, generator=default, device="npu")
    torch.rand(4, generator=other, device="npu")

    with torch.npu.graph(graph):
        a = torch.rand(4, generator=default, device="npu")
        default.graphsafe_set_state(other)
        b = torch.rand(4, generator=default, device="npu")
        default.graphsafe_set_state(state)
        c = torch.rand(4, generator=default, device="npu")

    one, two = generator(1), generator(2)
    draw(one), draw(two)
    for _ in range(3):
        graph.replay()
        replayed = [t.tolist() for t in (a, b, c)]
        assert replayed == [draw(one), draw(two), draw(one)]


def test_threads_that_share_a_state_draw_different_numbers():
    shared = [generator().graphsafe_get_state()]
    shared += [shared[0].graphsafe_get_state() for _ in range(3)]
    found: list[list[float]] = []

    def draws(g: torch.Generator) -> None:
        for _ in range(50):
            found.append(draw(g, 2))

    threads = [threading.Thread(target=draws, args=(g,)) for g in shared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    alone = generator()
    assert sorted(found) == sorted(draw(alone, 2) for _ in range(200))


@pytest.mark.parametrize(
    ("other", "error"),
    [(lambda: torch.Generator("cpu"), TypeError)],
)
def test_a_state_of_another_device_is_refused(other, error):
    with pytest.raises(error, match="needs a generator of npu"):
        generator().graphsafe_set_state(other())


def test_a_generator_of_a_device_that_is_not_there_is_refused():
    with pytest.raises(IndexError, match="no device 99"):
        torch.Generator("npu:99")
