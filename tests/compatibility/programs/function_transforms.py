"""torch.func: vmap, grad, jacrev, jvp, hessian."""

import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap

LIBRARY = "torch"


def run(device):
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)
    ).to(device)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x, labels = torch.rand(5, 4).to(device), torch.arange(5).to(device) % 3

    def loss(weights, one, label):
        out = functional_call(model, weights, (one[None],))
        return torch.nn.functional.cross_entropy(out, label[None])

    each = vmap(grad(loss), (None, 0, 0))(weights, x, labels)
    curved = hessian(lambda one: model(one).square().sum())(x[0])
    found = [
        *each.values(),
        vmap(jacrev(model))(x),
        curved,
        *jvp(model, (x,), (torch.ones_like(x),)),
    ]
    return [figure for one in found for figure in one.flatten().tolist()]
