"""torch_npu.contrib.module: torch's own modules under the vendor's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from npu_dispatch import npu
from npu_dispatch.import_alias import refused_names

Mish = nn.Mish
SiLU = Swish = nn.SiLU
DropoutWithByteMask = nn.Dropout
FastBatchNorm1d = nn.BatchNorm1d
FastBatchNorm2d = nn.BatchNorm2d
FastBatchNorm3d = nn.BatchNorm3d
FastSyncBatchNorm = nn.SyncBatchNorm


class LabelSmoothingCrossEntropy(nn.Module):
    """Cross entropy to smooth_factor, shared by the wrong classes, and the rest."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0) -> None:
        super().__init__()
        self.on_value = 1.0 - smooth_factor
        self.off_value = smooth_factor / (num_classes - 1)

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        wanted = torch.full_like(pred, self.off_value)
        wanted = wanted.scatter(1, target.long()[:, None], self.on_value)
        return nn.functional.cross_entropy(pred.float(), wanted.float())


class NpuDropPath(nn.Module):
    """Drops whole samples of a residual branch, and scales those that remain."""

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        ones = x.new_ones((x.shape[0],) + (1,) * (x.dim() - 1))
        return x * nn.functional.dropout(ones, self.drop_prob, self.training)


class Prefetcher:
    """Copies a loader's next pair to the device while the present one is used."""

    def __init__(self, loader: Iterable[Any], stream: Any = None) -> None:
        self.loader = iter(loader)
        self.stream = stream or npu.Stream()
        self.preload()

    def preload(self) -> None:
        """Begin to copy the next pair."""
        self.pair = next(self.loader, (None, None))
        with npu.stream(self.stream):
            self.pair = tuple(
                x if x is None else x.to("npu", non_blocking=True) for x in self.pair
            )

    def next(self) -> tuple[Any, Any]:
        """Return the pair that was copied, or (None, None) behind the last."""
        here = npu.current_stream()
        here.wait_stream(self.stream)
        pair = self.pair
        for x in pair:
            if x is not None:
                x.record_stream(here)
        if pair[1] is not None:
            self.preload()
        return pair


__getattr__ = refused_names("torch_npu.contrib.module")
