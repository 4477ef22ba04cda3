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


RANKS = [RankTime(2, 4300.0, 100.0, "device"), RankTime(16, 6000.0, 1200.0, "net")]
REFUSED = Graph(
    None,
    "npu: aten::item (item(), bool()) at /home/ada/train.py:12, on thread 1",
    "/home/ada/train.py:12",
)
SMALL_WAITS = [
    Blame(LINE, "item", 1, 50.0, 50.0),
    Blame(LINE, "full_queue", 9, 4000.0, 2000.0),
]
CAPTURED = replace(LAUNCH_BOUND, graph=Graph(159.0, "", ""))
BUSY = {"launch_bound": 0.0, "device_bound": 0.99}


@pytest.mark.parametrize(
    ("report", "wanted"),
    [
        (
            WAITS,
            ["Remove the wait at train.py:12 (item): the device is idle for 1.3"],
        ),
        # A wait that costs little and a full queue are no advice.
        (replace(LAUNCH_BOUND, blames=SMALL_WAITS), ["A faster device is wasted"]),
        (LAUNCH_BOUND, ["A faster device is wasted: the step waits for launches 97%"]),
        (DEVICE_BOUND, ["The device is the limit: it works 95% of the step, 62.0 µs"]),
        (
            replace(DEVICE_BOUND, what_if=[WhatIf("device 2x faster", 4190.0, 1.0)]),
            ["The host is as busy as the device is: 95% of the step"],
        ),
        (
            CAPTURED,
            [
                "Capture the step in a graph (compile_step): 26.4x faster, 159 µs",
                "A faster device is wasted",
            ],
        ),
        (
            replace(CAPTURED, step_is="a call of GPT"),
            [
                "Capture the step in a graph (torch.npu.graph)",
                "A faster device",
            ],
        ),
        (
            replace(LAUNCH_BOUND, graph=REFUSED),
            [
                "The script cannot be captured as it is: train.py:12: aten::item ",
                "A faster device is wasted",
            ],
        ),
        # A graph is no help where launches are none.
        (replace(LAUNCH_BOUND, graph=REFUSED, **BUSY), ["The device is the limit"]),
        (
            replace(WAITS, too_much=int(3.1 * 2**30), too_much_at="/train.py:88 in f"),
            ["It does not fit: 3.10 GiB too much at train.py:88", "Remove the wait"],
        ),
        # Of the most ranks.
        (
            replace(LAUNCH_BOUND, ranks=RANKS),
            [
                "A faster device is wasted",
                "Overlap communication with work, or send less: on 16 ranks 1.20 ms",
            ],
        ),
    ],
)
def test_a_report_advises_what_its_figures_say(report: Report, wanted: list[str]):
    found = [one.text for one in advice(report)]

    assert len(found) == len(wanted), found
    for text, beginning in zip(found, wanted, strict=True):
        assert text.startswith(beginning), found


def test_advice_says_where_and_what_it_gains_the_most_first_and_at_most_four() -> None:
    (one,) = advice(WAITS)
    assert one.gain_us == 1300.0 and "at train.py:12" in one.text

    waits = [Blame(f"a.py:{i}", "item", 1, 0.0, 300.0 + i) for i in range(9)]
    found = advice(replace(CAPTURED, blames=waits))

    gains = [one.gain_us for one in found]
    assert len(found) == 4 and gains == sorted(gains, reverse=True)
    for one, place in zip(found[2:], ("a.py:8", "a.py:7"), strict=True):
        assert f"at {place}" in one.text


def test_the_fastest_device_is_one_that_the_program_fits_on() -> None:
    small = replace(DEVICE_BOUND, device="small", step_us=1000.0, too_much=1)
    slow = replace(DEVICE_BOUND, device="slow", step_us=9000.0)

    assert fastest([small, slow, DEVICE_BOUND]) is DEVICE_BOUND
    assert fastest([small]) is None
    assert choice([small, small]) == "The program fits on none of these devices."
    assert choice([slow, DEVICE_BOUND]) == "Shortest step: a device, 4.20 ms."
    assert choice([DEVICE_BOUND]) == ""


def test_devices_that_are_as_fast_are_said_to_be() -> None:
    near = replace(DEVICE_BOUND, device="near", step_us=DEVICE_BOUND.step_us * 1.02)

    assert "near is as fast: the host is the limit" in choice([DEVICE_BOUND, near])
    other = replace(LAUNCH_BOUND, device="other", step_us=9000.0)
    assert "a faster one is wasted" in choice([LAUNCH_BOUND, other])


def test_the_terminal_says_first_what_to_do(capsys) -> None:
    show([WAITS])

    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("what to do 1. Remove the wait at train.py:12 (item)")


def test_figures_have_three_digits() -> None:
    for us, text in (
        (0, "0 µs"),
        (0.51234, "0.512 µs"),
        (159.06, "159 µs"),
        (999.6, "1.00 ms"),
        (5_280_700, "5.28 s"),
        (5_280_700_000, "5,281 s"),
    ):
        assert time_text(us) == text
    assert time_text(5280.7, 5100, 5600) == "5.28 ms (5.10\N{EN DASH}5.60)"
    assert size_text(346 << 10) == "346 KiB"
    assert memory_text(346 << 10, 24 << 30) == "346 KiB of 24 GiB"
    assert memory_text(3 << 20, 0) == "3.00 MiB"
    assert factor_text(18.72) == "18.7x"
