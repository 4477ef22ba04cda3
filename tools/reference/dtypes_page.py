"""dtypes.md: in which dtypes beyond cpu's the npu computes, found by calling."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance import cuda_dtypes


def lines() -> Iterator[str]:
    rows = cuda_dtypes.table()
    works = sorted(key for key, why in rows.items() if not why)
    fails = sorted((key, why) for key, why in rows.items() if why)
    by_type: dict[str, list[str]] = {}
    for name, dtype in works:
        by_type.setdefault(dtype, []).append(f"`{name}`")
    yield from [
        "# Dtypes beyond cpu's",
        "",
        "By torch's operator database CUDA's kernels take these dtypes and cpu's do",
        "not. The npu computes them in a wider one (float16 and bfloat16 in float32,",
        "integers in float64, complex32 in complex64), unless cpu's kernel takes them",
        "after all. Forward, as far as torch has samples.",
        "",
        "| dtype | computed |",
        "|---|---|",
        *(f"| {dtype} | {', '.join(names)} |" for dtype, names in by_type.items()),
        "",
        "Not computed: the call raises.",
        "",
        "| operator | dtype | what it says |",
        "|---|---|---|",
        *(f"| `{n}` | {d} | {why.replace('|', ' ')} |" for (n, d), why in fails),
    ]
