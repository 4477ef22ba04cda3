"""contract(), contract_expression(), gradients."""

import opt_einsum
import torch

LIBRARY = "opt-einsum"


def run(device):
    generator = torch.Generator().manual_seed(0)
    a, b, c = (
        torch.rand(shape, generator=generator).to(device).requires_grad_()
        for shape in ((4, 8), (8, 6, 4), (6, 4))
    )
    value = opt_einsum.contract("ij,jkl,kl->i", a, b, c)
    value.sum().backward()
    expression = opt_einsum.contract_expression("ij,jkl->kl", a.shape, b.shape)
    return [
        *value.tolist(),
        expression(a, b).sum().item(),
        *(t.grad.sum().item() for t in (a, b, c)),
    ]
