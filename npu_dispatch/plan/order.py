"""What the command asks of the process in which the program runs, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from npu_dispatch.plan.kernels.times import KernelTimes
from npu_dispatch.plan.network.ranks import Network
from npu_dispatch.plan.sheet import Sheet
from npu_dispatch.plan.study import Recorded

__all__ = ["Answer", "Order"]


@dataclass(frozen=True, slots=True)
class Order:
    sheets: Sequence[Sheet]
    steps: int  # at least
    least_ns: int  # and as many more as take so long
    warmup: int
    module: bool
    host_speed: float
    kernels: KernelTimes | None
    network: Network | None  # of the job that the program is a rank of; None: no job
    out: str  # the file for the answer


@dataclass(frozen=True, slots=True)
class Answer:
    failure: str  # why there is no plan; "": there is
    recorded: list[Recorded] = field(default_factory=list)  # by sheet
