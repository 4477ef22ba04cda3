"""GCN and GAT layers: 5 training steps each."""

import tiny
import torch
from torch_geometric.nn import GATConv, GCNConv

LIBRARY = "torch-geometric"


class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first, self.second = kind(8, 16), kind(16, 3)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


def run(device):
    x, edges = torch.rand(30, 8).to(device), torch.randint(30, (2, 90)).to(device)
    truth = (torch.arange(30) % 3).to(device)
    losses = []
    for kind in (GCNConv, GATConv):
        torch.manual_seed(1)
        model = Net(kind).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

        def loss(model=model):
            return torch.nn.functional.cross_entropy(model(x, edges), truth)

        losses += tiny.train(optimizer, loss, 5)
    return losses
