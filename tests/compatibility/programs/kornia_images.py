"""blur, edges, colours, rotation, resizing, SSIM, gradients."""

import kornia
import torch

LIBRARY = "kornia"


def run(device):
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images = images.to(device).requires_grad_()
    angles = torch.tensor([10.0, 45.0], device=device)
    found = [
        kornia.filters.gaussian_blur2d(images, (3, 3), (1.5, 1.5)),
        kornia.filters.sobel(images),
        kornia.color.rgb_to_hsv(images),
        kornia.geometry.transform.rotate(images, angles),
        kornia.geometry.transform.resize(images, (8, 8)),
        kornia.losses.ssim_loss(images, images.flip(-1), window_size=5),
    ]
    sum(one.sum() for one in found).backward()
    return [*(one.sum().item() for one in found), images.grad.abs().sum().item()]
