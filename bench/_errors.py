"""The errors of `npu-dispatch plan`, and their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Why the error of a kind may be beyond the goal.
REASONS = {
    "mlp": "A step is a third of a millisecond of Python, whose speed differs between "
    "processes.",
    "gpt_tiny": "Products of few rows are slower, and a spec has one rate for all "
    "products.",
    "gpt_wide": "`calibrate` takes the speed of the shortest calls, which the machine "
    "does not keep during a long step.",
    "cnn": "A spec has one rate for all convolutions, and one for pooling and other "
    "reductions.",
    "lstm": "The cost of a time step is the difference of two layers' times, and "
    "includes the packing of weights.",
    "gru": "A step launches about 600 kernels of one or two microseconds, which all "
    "have the same fixed time in a spec.",
    "depthwise_cnn": "A spec has one rate for all convolutions.",
    "attention": "A causal mask halves the work, but all operations are counted.",
    "embedding_bag": "The optimizer's update of the table takes most of a step and is "
    "faster than other memory-bound kernels.",
    "resnet18": "A spec has one rate for all convolutions, and one for pooling and "
    "other reductions.",
    "unet": "Convolutions of few channels reach less of the peak, and upsampling is "
    "modelled as a copy.",
    "ppo": "The program waits for each action, and a sleeping thread reacts later than "
    "a spinning one.",
    "server": "The program waits for each answer, and a sleeping thread reacts later "
    "than a spinning one.",
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
