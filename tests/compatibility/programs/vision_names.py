"""Import this before torchvision.

PyPI has torchvision's kernels for builds of torch with CUDA alone. Its Python wants
the names of two operators nevertheless.
"""

import torch

names = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    names.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
