"""VectorQuantize and FSQ, gradients."""

import torch
from vector_quantize_pytorch import FSQ, VectorQuantize

LIBRARY = "vector-quantize-pytorch"


def run(device):
    vectors = VectorQuantize(dim=8, codebook_size=16, decay=0.8).to(device)
    x = torch.rand(2, 10, 8).to(device).requires_grad_()
    found = []
    for _ in range(3):
        quantized, codes, loss = vectors(x)
        (quantized.square().sum() + loss.sum()).backward()
        found += [quantized.sum().item(), loss.sum().item(), *codes.flatten().tolist()]
    scalars, codes = FSQ([4, 4]).to(device)(torch.rand(2, 5, 2).to(device))
    found += [scalars.sum().item(), *codes.flatten().tolist()]
    return [*found, x.grad.sum().item()]
