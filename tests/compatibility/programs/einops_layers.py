"""layers Rearrange and Reduce, einsum(), pack(), unpack(): 5 training steps."""

import einops
import tiny
import torch
from einops.layers.torch import Rearrange, Reduce

LIBRARY = "einops"


def run(device):
    images = torch.rand(4, 3, 8, 8)
    model = torch.nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
        torch.nn.Linear(12, 8),
        Reduce("b t d -> b d", "mean"),
        torch.nn.Linear(8, 2),
    ).to(device)
    images = images.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = tiny.train(
        optimizer, lambda: einops.einsum(model(images) ** 2, "b d -> b").mean(), 5
    )
    packed, shapes = einops.pack([images, images[:, :1]], "b * h w")
    back = einops.unpack(packed, shapes, "b * h w")
    return [*losses, *(part.sum().item() for part in back)]
