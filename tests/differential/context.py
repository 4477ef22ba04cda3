"""What a step's author knows: its choices, and the variables as they are on cpu.

Choices come from bytes, as many for each step. They are drawn at once: a draw for each
decision takes longer than the calls it decides.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from tests.differential.observe import ENDED
from tests.differential.tables import DTYPES, SEEDS

T = TypeVar("T")
DECISIONS = 48  # of a step, at most; what it asks beyond is the first option
SLOTS = 9
SHAPES = [
    (), (1,), (2,), (3,), (5,), (0,), (7,),
    (2, 3), (3, 2), (3, 3), (4, 4), (1, 4), (5, 1), (0, 3), (3, 0), (6, 7), (1, 1),
    (2, 3, 4), (2, 3, 1), (1, 3, 2), (3, 1, 2), (2, 0, 3), (4, 2, 2),
    (2, 3, 1, 1), (1, 3, 4, 4), (2, 4, 3, 3), (2, 3, 2, 5), (1, 1, 3, 1), (2, 1, 3, 2),
    (1, 2, 3, 2, 2), (2, 3, 1, 2, 1), (1, 1, 1, 1, 1),
]  # fmt: skip
# Most tensors are float32, as in programs.
KINDS = ["float32"] * 8 + ["float64"] * 3 + ["int64"] * 4 + ["int32", "bool", "bool"]
KINDS += ["float16", "bfloat16", "complex64", "uint8", "int8", "int16"]
NAME_OF = {dtype: name for name, dtype in DTYPES.items()}
Test = Callable[[torch.Tensor], bool]


def floating(t: torch.Tensor) -> bool:
    return t.dtype.is_floating_point


def integral(t: torch.Tensor) -> bool:
    return not t.dtype.is_floating_point and not t.dtype.is_complex


class Choices:
    """The decisions of one step."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk
        self._next = 0

    def below(self, n: int) -> int:
        """Return one of 0, ..., n - 1, where n is at most 256."""
        self._next += 1
        if self._next > len(self._chunk):
            return 0
        return self._chunk[self._next - 1] % n

    def between(self, low: int, high: int) -> int:
        """Return one of low, ..., high."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == one_in - 1


def steps(seed: int, number: int, shortest: int, longest: int) -> list[Choices]:
    """Draw the steps of one program of a round."""
    drawn = random.Random(seed << 32 | number)
    count = drawn.randint(shortest, longest)
    return [Choices(drawn.randbytes(DECISIONS)) for _ in range(count)]


class Context:
    """Choices and variables, and words for both."""

    def __init__(self, choices: Choices, names: dict[str, Any]) -> None:
        self.choices = choices
        self.pick, self.below = choices.pick, choices.below
        self.between, self.chance = choices.between, choices.chance
        self.names = names
        self.tensors = {
            name: value
            for name, value in names.items()
            if name[0] == "t" and name[1:].isdigit() and isinstance(value, torch.Tensor)
        }

    def new(self) -> str:
        """Return the variable to assign to: an unused one, or one to give up."""
        slot = self.below(SLOTS)
        for i in range(SLOTS):
            if f"t{(slot + i) % SLOTS}" not in self.names:
                return f"t{(slot + i) % SLOTS}"
        return f"t{slot}"

    def any(self, test: Test | None = None) -> str | None:
        """Return a tensor's name, the last made one most often."""
        found = [n for n, t in self.tensors.items() if test is None or _is(test, t)]
        if not found:
            return None
        if self.chance(3):
            return found[-1]
        return self.pick(found)

    def own(self, kind: str, test: Test | None = None) -> str | None:
        """Return the name of a tensor of another kind than t: b0, e1, ..."""
        found = [
            name
            for name, value in self.names.items()
            if name[0] == kind and name[1:].isdigit()
            if isinstance(value, torch.Tensor) and (test is None or _is(test, value))
        ]
        return self.pick(found) if found else None

    def of(self, name: str) -> torch.Tensor:
        return self.names[name]

    def rank(self, name: str) -> int:
        return self.of(name).dim()

    def dim(self, name: str) -> int:
        """Return a dimension, rarely one that is not there."""
        rank = max(self.rank(name), 1)
        if self.chance(40):
            return rank + 1
        return self.between(-rank, rank - 1)

    def flag(self) -> bool:
        return bool(self.below(2))

    def number(self) -> str:
        return self.pick(["2", "0.5", "-1", "3", "1.25", "0", "True", "-2.5"])

    def kind(self) -> str:
        return self.pick(KINDS)

    def data(self, shape: Any, kind: str | None = None) -> str:
        kind = kind or self.kind()
        return f"data({tuple(shape)}, {kind}, {self.below(SEEDS)})"

    def like(self, name: str) -> str:
        """Return a tensor that goes with a tensor: a variable, or new numbers."""
        t = self.of(name)
        if self.below(3):
            other = self.any(lambda o: _broadcast(o.shape, t.shape))
            if other is not None:
                return other
        shape = list(t.shape)
        if shape and self.chance(3):
            shape[self.below(len(shape))] = 1
        if shape and self.chance(4):
            shape = shape[1:]
        if self.chance(25):
            return self.data((*shape, 2))  # An error, most likely.
        return self.data(shape, NAME_OF.get(t.dtype) if self.below(4) else None)

    def operand(self, name: str) -> str:
        """Return a tensor, a number, or a tensor of one number on the host."""
        which = self.below(10)
        if which < 6:
            return self.like(name)
        if which < 8:
            return self.number()
        hosts = [n for n in self.names if n[0] == "h" and n[1:].isdigit()]
        if hosts and which == 8:
            return self.pick(hosts)
        return f"torch.tensor({self.number()})"

    def indices(self, size: int, shape: Any) -> str:
        """Return indices below size, seldom one that is not."""
        count = 1
        for n in shape:
            count *= n
        wrong = self.chance(30)
        base = self.below(max(size, 1))
        numbers = [
            (base + i * 5 + (7 if i % 3 else 0)) % max(size, 1) for i in range(count)
        ]
        if wrong and numbers:
            numbers[-1] = size + 3
        text = f"torch.tensor({numbers}, device=D, dtype=int64)"
        return text if len(tuple(shape)) == 1 else f"{text}.view({tuple(shape)})"

    def shape(self) -> Any:
        return self.pick(SHAPES)

    def memory_format(self, name: str) -> str:
        options = ["contiguous_format", "preserve_format"]
        if self.rank(name) == 4 or self.chance(20):
            options += ["channels_last"] * 2
        if self.rank(name) == 5:
            options += ["channels_last_3d"] * 2
        return "torch." + self.pick(options)


def _is(test: Test, t: torch.Tensor) -> bool:
    try:
        return test(t)
    except ENDED:
        return False


def _broadcast(a: Any, b: Any) -> bool:
    """Whether b's shape is that of both together."""
    if len(a) > len(b):
        return False
    return all(x in (1, y) for x, y in zip(reversed(a), reversed(b), strict=False))
