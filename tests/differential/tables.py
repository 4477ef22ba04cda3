"""The numbers that programs' tensors are made of: the same on every device."""

import functools
import math

import torch

TABLE = 512
SEEDS = 21  # of data()
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "complex64": torch.complex64,
    "complex32": torch.complex32,
}
ENDS = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8"]
Shape = tuple[int, ...]


@functools.cache
def table(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return numbers that differ from their neighbours; every 7th seed is wild."""
    numbers = [((i * 37 + seed * 11) % 29 - 11) / 4 for i in range(TABLE)]
    if dtype == torch.bool:
        return torch.tensor([(i * 7 + seed) % 3 == 0 for i in range(TABLE)])
    if dtype == torch.uint8:
        return torch.tensor([int(abs(4 * x)) for x in numbers], dtype=dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.tensor([int(4 * x) for x in numbers], dtype=dtype)
    if seed % 7 == 6:
        wild = [math.nan, math.inf, -math.inf, -0.0, 0.0, 3e4, 1e-7]
        numbers[3::5] = [wild[i % 7] for i in range(len(numbers[3::5]))]
    if dtype.is_complex:
        return torch.tensor([complex(x, 1 - x) for x in numbers], dtype=dtype)
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


@functools.cache
def ends(dtype: torch.dtype) -> torch.Tensor:
    """Return the ends of a dtype's range, what lies beside them, and no numbers."""
    if not dtype.is_floating_point:
        whole = torch.iinfo(dtype)
        near = [whole.min, whole.max, whole.min + 1, whole.max - 1, whole.max // 2]
        return torch.tensor([*near, 0, 1, 7], dtype=dtype)
    real = torch.finfo(dtype)
    near = [real.max, -real.max, real.tiny, -real.tiny, real.smallest_normal]
    near += [real.tiny * real.eps, real.tiny / 2, real.eps, 1 + real.eps, 1 / real.eps]
    numbers = [*near, math.inf, -math.inf, math.nan, -0.0, 0.0, real.max / 2, 1.5]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


def fill() -> None:
    """Work out what data() and ends() return."""
    for dtype in DTYPES.values():
        for seed in range(SEEDS):
            table(dtype, seed)
    for name in ENDS:
        ends(DTYPES[name])


def small(shape: Shape, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return numbers for as few elements as the table has."""
    return table(dtype, seed)[: math.prod(shape)]


def repeated(numbers: torch.Tensor, shape: Shape, start: int = 0) -> torch.Tensor:
    """Return a new tensor of any shape, made of numbers over and over."""
    count = math.prod(shape)
    times = -(-(count + start) // numbers.numel())
    return numbers.repeat(times)[start : start + count].clone().view(shape)
