"""What a report advises, and how its figures are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npu_dispatch.plan.advice import advice, choice, fastest
from npu_dispatch.plan.analysis import (
    Blame,
    Graph,
    Operator,
    RankTime,
    Report,
    WhatIf,
)
from npu_dispatch.plan.show import show
from npu_dispatch.plan.texts import (
    factor_text,
    line_text,
    memory_text,
    size_text,
    time_text,
)

LINE = "/home/ada/train.py:12 in step"
LAUNCH_BOUND = Report(
    device="a device",
    step_is="a step of AdamW",
    steps=10,
    step_us=4200.0,
    device_bound=0.02,
    launch_bound=0.97,
    sync_bound=0.01,
    launches=42,
    depth_median=3,
    depth_max=9,
    peak_allocated=3 << 30,
    peak_reserved=4 << 30,
    operators=[Operator("aten::mm", 9, 62.0, 100.0)],
    blames=[Blame(LINE, "launches", 42, 4000.0, 4000.0)],
    what_if=[WhatIf("host 2x faster", 2100.0, 2.0)],
    graph=None,
    notes=[],
)
WAITS = replace(
    LAUNCH_BOUND,
    launch_bound=0.3,
    sync_bound=0.68,
    blames=[Blame(LINE, "item", 1, 1500.0, 1300.0)],
)
DEVICE_BOUND = replace(
    LAUNCH_BOUND,
    device_bound=0.95,
    launch_bound=0.05,
    what_if=[WhatIf("device 2x faster", 2210.0, 1.9)],
)


def sentences(report: Report) -> list[str]:
    return [one.text for one in advice(report)]


def test_a_wait_is_to_be_removed_at_its_line() -> None:
    (one,) = advice(WAITS)

    assert one.text == (
        "Remove the wait at train.py:12 (item): the device is idle for 1.30 ms of "
        "each 4.20 ms step because of it."
    )
    assert (one.gain_us, one.where) == (1300.0, LINE)


def test_a_wait_that_costs_little_and_a_full_queue_are_no_advice() -> None:
    blames = [
        Blame(LINE, "item", 1, 50.0, 50.0),
        Blame(LINE, "full_queue", 9, 4000.0, 2000.0),
    ]
    (one,) = sentences(replace(LAUNCH_BOUND, blames=blames))

    assert one.startswith("A faster device is wasted")


def test_launches_are_the_limit() -> None:
    (one,) = sentences(LAUNCH_BOUND)

    assert one == (
        "A faster device is wasted: the step waits for launches 97% of its time; a "
        "host twice as fast gives 2.00x."
    )


def test_the_device_is_the_limit() -> None:
    (one,) = sentences(DEVICE_BOUND)

    assert one == (
        "The device is the limit: it works 95% of the step, 62.0 µs of it in "
        "aten::mm; a device twice as fast gives 1.90x."
    )


def test_a_step_that_can_be_captured_is_to_be() -> None:
    captured = replace(LAUNCH_BOUND, graph=Graph(159.0, "", ""))

    first, second = sentences(captured)
    assert first == (
        "Capture the step in a graph (compile_step): 26.4x faster, 159 µs a step."
    )
    assert second.startswith("A faster device is wasted")
    served = replace(captured, step_is="a call of GPT")
    assert "(torch.npu.graph)" in sentences(served)[0]


def test_the_line_that_prevents_a_graph_is_named() -> None:
    why = "npu: aten::item (item(), bool()) at /home/ada/train.py:12, on thread 1"
    refused = replace(LAUNCH_BOUND, graph=Graph(None, why, "/home/ada/train.py:12"))

    assert sentences(refused)[0] == (
        "The script cannot be captured as it is: train.py:12: aten::item (item(), "
        "bool()). A step in a graph would save up to 4.07 ms of 4.20 ms."
    )
    # A graph is no help where launches are none.
    busy = replace(refused, launch_bound=0.0, device_bound=0.99)
    assert not [text for text in sentences(busy) if "captured" in text]


def test_what_does_not_fit_comes_first() -> None:
    large = replace(
        WAITS, too_much=int(3.1 * 2**30), too_much_at="/home/ada/train.py:88 in main"
    )

    assert sentences(large)[0] == (
        "It does not fit: 3.10 GiB too much at train.py:88; a smaller batch or "
        "activation checkpointing is needed."
    )


def test_communication_that_is_exposed_is_told_of_the_most_ranks() -> None:
    ranks = [RankTime(2, 4300.0, 100.0, "device"), RankTime(16, 6000.0, 1200.0, "net")]

    assert (
        "Overlap communication with work, or send less: on 16 ranks 1.20 ms of each "
        "6.00 ms step only waits for others (bound by: net)."
    ) in sentences(replace(LAUNCH_BOUND, ranks=ranks))


def test_the_worst_comes_first_and_there_are_at_most_four() -> None:
    waits = [Blame(f"a.py:{i}", "item", 1, 0.0, 300.0 + i) for i in range(9)]
    found = advice(replace(LAUNCH_BOUND, blames=waits, graph=Graph(159.0, "", "")))

    gains = [one.gain_us for one in found]
    assert len(found) == 4 and gains == sorted(gains, reverse=True)
    assert [one.where for one in found][2:] == ["a.py:8", "a.py:7"]


def test_the_fastest_device_is_one_that_the_program_fits_on() -> None:
    small = replace(DEVICE_BOUND, device="small", step_us=1000.0, too_much=1)
    slow = replace(DEVICE_BOUND, device="slow", step_us=9000.0)

    assert fastest([small, slow, DEVICE_BOUND]) is DEVICE_BOUND
    assert fastest([small]) is None
    assert choice([small, small]) == "The program fits on none of these devices."
    assert choice([slow, DEVICE_BOUND]) == "Shortest step: a device, 4.20 ms."
    assert choice([DEVICE_BOUND]) == ""


def test_steps_that_cannot_be_told_apart_are_said_to_be() -> None:
    best = replace(DEVICE_BOUND, least_us=4000.0, most_us=4400.0)
    near = replace(DEVICE_BOUND, device="near", step_us=4500.0, least_us=4300.0)

    assert "The range of near overlaps" in choice([best, near])
    other = replace(LAUNCH_BOUND, device="other", step_us=9000.0)
    assert "they differ mostly by chance" in choice([LAUNCH_BOUND, other])


def test_the_terminal_says_first_what_to_do(capsys) -> None:
    show([WAITS])

    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("what to do 1. Remove the wait at train.py:12 (item)")


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (0.51234, "0.512 µs"),
        (15.04, "15.0 µs"),
        (159.06, "159 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (5280.7, "5.28 ms"),
        (52_807, "52.8 ms"),
        (5_280_700, "5.28 s"),
        (5_280_700_000, "5,281 s"),
    ],
)
def test_times_have_three_digits(us: float, text: str) -> None:
    assert time_text(us) == text


def test_ranges_sizes_factors_and_lines() -> None:
    assert time_text(5280.7, 5100, 5600) == "5.28 ms (5.10\N{EN DASH}5.60)"
    assert size_text(346 << 10) == "346 KiB"
    assert memory_text(int(12.3 * 2**30), 80 << 30) == "12.3 of 80 GiB"
    assert memory_text(346 << 10, 24 << 30) == "346 KiB of 24 GiB"
    assert memory_text(3 << 20, 0) == "3.00 MiB"
    assert factor_text(18.72) == "18.7x"
    assert line_text("/home/ada/train.py:12 in step") == "train.py:12"
