"""torch.export: dynamic shapes, save(), load()."""

import io

import torch
from torch.export import Dim, export, load, save

LIBRARY = "torch"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x, scale):
        return self.norm(self.layer(x)).relu() * scale


def run(device):
    model = Model().to(device).eval()
    x = torch.rand(6, 4).to(device)
    program = export(model, (x, 2.0), dynamic_shapes=({0: Dim("rows", min=2)}, None))
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    found = []
    for made in (program, load(file), program.run_decompositions()):
        out = made.module()(x[:3], 2.0)
        assert out.device.type == device
        found += out.flatten().tolist()
    return found
