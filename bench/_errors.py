"""The table of how near `npu-dispatch plan` comes, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What is known of those kinds whose error is beyond the goal.
_HOST = "Recording slows down each launch, and the plan subtracts only a part of this."
_SIZES = "Kernels between the sizes that were measured are interpolated."
_CACHES = "`calibrate` repeats a kernel with the same tensors, which stay in a cache."
REASONS = {
    **dict.fromkeys(("gpt_tiny", "gpt_wide", "cnn", "lstm", "resnet18"), _SIZES),
    **dict.fromkeys(("embedding_bag", "unet", "wide_mlp"), _SIZES),
    **dict.fromkeys(("mlp", "ppo"), _HOST),
    "gru": "Most tensors are parts of larger ones, and the plan ignores strides.",
    "depthwise_cnn": _CACHES,
    "attention": "A causal mask halves the work, and the plan ignores masks.",
    "server": "The program waits for each answer; a sleeping thread wakes up late.",
}


def errors(result: Mapping[str, Any]) -> str:
    """Return a row for each kind of program, and a sentence for each that misses."""
    cases = result["benches"]["plan"]["cases"]
    text = (
        "| kind | grid | limit | real | planned | measured | interpolated | error |\n"
    )
    text += "| --- " * 8 + "|\n"
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
        parts = (
            f"{100 * figures[origin]['median']:.0f} %"
            for origin in ("measured", "interpolated")
        )
        words = f"`{name}`", labels["kind"], labels["limit"]
        text += f"| {' | '.join((*words, real, planned, *parts, error))} |\n"
    all_kinds = cases["median_error"]["figures"]
    for field, words in (("error", "median"), ("worst", "worst")):
        error = f"{100 * all_kinds[field]['median']:.0f} %"
        text += f"| {words} of the runs | | | | | | | {error} |\n"
    return f"{text}\n{said}\n" if said else f"{text}\n"
