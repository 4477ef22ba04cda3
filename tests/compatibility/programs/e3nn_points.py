"""tensor product, spherical harmonics, gradients."""

import torch
from e3nn import o3

LIBRARY = "e3nn"


def run(device):
    inputs = o3.Irreps("4x0e + 2x1o")
    product = o3.FullyConnectedTensorProduct(inputs, "1x0e + 1x1o", "3x0e + 1x1o")
    linear = o3.Linear("3x0e + 1x1o", "1x0e").to(device)
    product = product.to(device)
    points = torch.rand(6, 3).to(device).requires_grad_()
    x = torch.rand(6, inputs.dim).to(device)
    harmonics = o3.spherical_harmonics("0e + 1o", points, normalize=True)
    energy = linear(product(x, harmonics)).sum()
    energy.backward()
    return [energy.item(), *points.grad.flatten().tolist()]
