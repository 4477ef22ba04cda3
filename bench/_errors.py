"""The table of how near `npu-dispatch plan` comes, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What is known of those kinds whose error is beyond the goal.
REASONS = {
    "mlp": "A step is a third of a millisecond of Python, whose speed differs from "
    "process to process.",
    "gpt_tiny": "Products of few rows take a time of their own, and a spec has one "
    "rate for all.",
    "gpt_wide": "The machine keeps the speed of the shortest calls, which `calibrate` "
    "takes, for no long step.",
    "cnn": "Convolutions of all shapes have one rate, and pooling that of other "
    "reductions.",
    "lstm": "A time step's cost is a difference of two layers' times, and packing of "
    "weights is taken to be a part of it.",
    "gru": "A step launches some 600 kernels of a microsecond or two, and on a spec "
    "all have the same fixed time.",
    "depthwise_cnn": "Convolutions of all shapes have one rate.",
    "attention": "A causal mask halves the work, and operations are counted in full.",
    "embedding_bag": "Most of a step is the optimizer's update of the table, which "
    "moves memory faster than the usual kernel.",
    "resnet18": "Convolutions of all shapes have one rate, and pooling that of other "
    "reductions.",
    "unet": "Convolutions of few channels reach less of the peak than wide ones, and "
    "upsampling is taken for a stream.",
    "ppo": "Each action is waited for, and a thread that has slept wakes later than "
    "one that spins.",
    "server": "Each answer is waited for, and a thread that has slept wakes later "
    "than one that spins.",
    "wide_mlp": "Products of few rows and large weights are slower than square ones.",
}


def errors(result: Mapping[str, Any]) -> str:
    """Return a row for each kind of program, and a sentence for each that misses."""
    cases = result["benches"]["plan"]["cases"]
    text = "| kind | spec | limit | real | planned | error |\n" + "| --- " * 6 + "|\n"
    said = ""
    for name, case in cases.items():
        if "kind" not in case["labels"]:
            continue
        figures, labels = case["figures"], case["labels"]
        error = f"{100 * (figures['ratio']['median'] - 1):+.0f} %"
        if case["short"]:
            said += f"- `{name}`: {REASONS[name]}\n"
        real, planned = (
            f"{figures[field]['median'] / 1e3:,.2f} ms"
            for field in ("real_us", "planned_us")
        )
        cells = (f"`{name}`", labels["kind"], labels["limit"], real, planned, error)
        text += f"| {' | '.join(cells)} |\n"
    all_kinds = cases["median_error"]["figures"]
    for field, words in (("error", "median"), ("worst", "worst")):
        error = f"{100 * all_kinds[field]['median']:.0f} %"
        text += f"| {words} of the runs | | | | | {error} |\n"
    return f"{text}\n{said}\n" if said else f"{text}\n"
