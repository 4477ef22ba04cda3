"""SummaryWriter: scalars, histograms, an image, the model's graph."""

import tempfile

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

LIBRARY = "tensorboard"


def run(device):
    model = torch.nn.Linear(4, 1).to(device)
    x = torch.rand(8, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tempfile.mkdtemp()
    with SummaryWriter(folder) as writer:
        writer.add_graph(model, x)
        for step in range(4):
            loss = (model(x) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.add_scalar("loss", loss, step)
            writer.add_histogram("weight", model.weight, step)
        writer.add_image("x", x[None])
    told = EventAccumulator(folder).Reload()
    found = [event.value for event in told.Scalars("loss")]
    for event in told.Histograms("weight"):
        found += [event.histogram_value.sum, *event.histogram_value.bucket]
    assert told.Graph().node and told.Images("x")
    return found
