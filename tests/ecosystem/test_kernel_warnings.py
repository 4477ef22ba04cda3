"""Warnings of kernels, which run when the call is over: each comes once, in Python."""

import warnings
from contextlib import nullcontext

import pytest
import torch

from tests.ecosystem.both import in_threads
from tests.graphs.captured import captured

TOO_FEW = "degrees of freedom is <= 0"


def one_element(device):
    return torch.ones(1, device=device)


def of_a_few_numbers(device):
    """Warn in the kernel: of one number there is no deviation."""
    torch.std(one_element(device))


def of_old_masks(device):
    """Warn before the kernel and in it: masks are bool now."""
    x = torch.arange(6.0, device=device).view(2, 3)
    mask = torch.ones(2, dtype=torch.uint8, device=device)
    x[mask, torch.tensor([1, 1, 0], dtype=torch.uint8, device=device)]


def of_a_result_that_is_resized(device):
    """Warn where the result is resized."""
    out = torch.ones(3, device=device)
    torch.add(one_element(device), one_element(device), out=out)


CALLS = [of_a_few_numbers, of_old_masks, of_a_result_that_is_resized]


def heard(call, device, times=1):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(times):
            call(device)
        if device == "npu":
            torch.npu.synchronize()
    return [(str(w.message), w.category) for w in found]


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("call", CALLS)
def test_each_call_warns_as_often_as_on_cpu(call, times):
    expected = heard(call, "cpu", times)
    assert len(expected) >= times
    # The first call of a kind asks more than the kernel.
    assert heard(call, "npu", times) == expected
    assert heard(call, "npu", times) == expected


@pytest.mark.parametrize(
    "mode",
    [
        nullcontext,
        torch.npu.launch_blocking,
        lambda: torch.npu.stream(torch.npu.SyncLaunchStream()),
        lambda: torch.npu.stream(torch.npu.Stream()),
    ],
    ids=["queued", "blocking", "inline", "another stream"],
)
def test_warnings_come_however_the_kernel_runs(mode):
    expected = heard(of_a_few_numbers, "cpu", 3)
    with mode():
        assert heard(of_a_few_numbers, "npu", 3) == expected


def test_a_warning_that_is_an_error_is_raised_where_the_program_waits():
    of_a_few_numbers("npu")  # the first call of a kind warns itself
    torch.npu.synchronize()
    x = one_element("npu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = torch.std(x)
        with pytest.raises(UserWarning, match=TOO_FEW):
            y.item()
        # It was said, and nothing else is wrong.
        assert y.isnan().item()


def test_the_thread_that_waits_hears():
    of_a_few_numbers("npu")
    torch.npu.synchronize()
    found = []

    torch.std(one_element("npu"))
    in_threads(lambda: found.extend(heard(lambda _: None, "npu")))
    [(text, _)] = found
    assert TOO_FEW in text


def test_replays_warn():
    x = one_element("npu")
    of_a_few_numbers("npu")
    graph, _ = captured(lambda: torch.std(x))
    torch.npu.synchronize()
    assert len(heard(lambda _: graph.replay(), "npu", 3)) == 3
