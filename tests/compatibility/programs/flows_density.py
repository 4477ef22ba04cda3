"""a masked autoregressive flow: 5 training steps."""

import tiny
import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform
from nflows.transforms.permutations import ReversePermutation

LIBRARY = "nflows"


def run(device):
    parts = [
        part
        for _ in range(2)
        for part in (
            ReversePermutation(2),
            MaskedAffineAutoregressiveTransform(2, hidden_features=8),
        )
    ]
    flow = Flow(CompositeTransform(parts), StandardNormal([2])).to(device)
    x = torch.rand(32, 2).to(device)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    return tiny.train(optimizer, lambda: -flow.log_prob(x).mean(), 5)
