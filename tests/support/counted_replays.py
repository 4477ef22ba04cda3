"""A function that replays graphs of its own, without a compiler."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from npu_dispatch.npu.graphs.replays import Replays

__all__ = ["Counted"]


class Counted:
    """A function of tensors that replays, and says how often it was really called."""

    def __init__(
        self, function: Callable[..., Any], fixed: set[int] | None = None
    ) -> None:
        self.function = function
        self.calls = 0
        self.said: list[str] = []
        self._replays = Replays(self._boxed, fixed or set(), 0, self.said.append)

    def _boxed(self, inputs: list[Any]) -> list[Tensor]:
        self.calls += 1
        given = list(inputs)
        inputs.clear()
        result = self.function(*given)
        return list(result) if isinstance(result, tuple) else [result]

    def __call__(self, *inputs: Any) -> Any:
        results = self._replays(list(inputs))
        return results[0] if len(results) == 1 else tuple(results)
