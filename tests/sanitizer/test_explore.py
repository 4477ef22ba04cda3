"""Chosen interleavings: wrong programs differ, right ones do not, seeds replay."""

import pytest
import torch

from npu_dispatch.testing import ScheduleError, explore, schedule

pytestmark = pytest.mark.npu_races("to see them make a difference")


def unordered():
    s = torch.npu.Stream()
    x = torch.zeros(100, device="npu")
    torch.npu.synchronize()
    x.add_(1)
    with torch.npu.stream(s):
        x.mul_(2)
    torch.npu.synchronize()
    return x


def ordered():
    s = torch.npu.Stream()
    x = torch.zeros(100, device="npu")
    s.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(s):
        x.add_(1)
    torch.npu.current_stream().wait_stream(s)
    return x.mul_(2)


def reads_a_pinned_buffer_too_early():
    p, x = torch.zeros(100).pin_memory(), torch.ones(100, device="npu")
    p.copy_(x, non_blocking=True)
    total = float(p.sum())
    torch.npu.synchronize()
    return total


def uses_memory_that_was_freed():
    s = torch.npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(s):
        y = x * 2
    del x
    torch.npu.synchronize()
    return y


@pytest.mark.parametrize(
    "program", [unordered, reads_a_pinned_buffer_too_early, uses_memory_that_was_freed]
)
def test_a_wrong_program_differs_under_some_schedule_and_its_seed_replays(program):
    with pytest.raises(ScheduleError) as found:
        explore(program, schedules=50)

    with pytest.raises(ScheduleError) as again:
        explore(program, schedules=1, seed=found.value.seed)
    assert again.value.seed == found.value.seed
    assert f"seed={found.value.seed}" in str(again.value)


def test_a_right_program_is_the_same_under_all_schedules():
    runs = explore(ordered, schedules=30)

    assert len({run.trace for run in runs}) > 1


def test_a_seed_gives_the_same_interleaving_again():
    def trace(seed):
        with schedule(seed) as run:
            unordered()
        return run.trace

    assert trace(7) == trace(7)
    assert len({trace(seed) for seed in range(1, 20)}) > 1


def test_schedules_do_not_nest():
    with schedule(1), pytest.raises(RuntimeError, match="already"), schedule(2):
        pass


def test_streams_have_their_own_threads_again_afterwards():
    explore(ordered, schedules=2)

    x = torch.ones(3, device="npu") + 1
    assert x.tolist() == [2, 2, 2]


def test_a_result_that_is_not_a_number_equals_itself():
    explore(lambda: (float("nan"), torch.tensor(float("nan")).npu()), schedules=2)


def test_a_result_that_cannot_be_compared_is_no_race():
    with pytest.raises(TypeError, match="a Thing, which defines no =="):
        explore(type("Thing", (), {}), schedules=2)
