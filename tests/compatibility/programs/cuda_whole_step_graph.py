"""`npu-dispatch run --cuda` with a training step captured whole: 6 steps.

Forward, backward and a capturable Adam are captured as torch's notes on graphs show.
"""

import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"

STEPS, WARM = 6, 3


def run(device):
    model = nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 4)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=0.01, capturable=device == "cuda"
    )
    batches = [(torch.randn(12, 20), torch.randint(4, (12,))) for _ in range(STEPS)]
    x, y = (t.to(device) for t in batches[0])

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    if device == "cpu":
        for _ in range(WARM):
            step()
        for a, b in batches:
            x, y = a, b
            losses.append(step().item())
    else:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        for a, b in batches:
            x.copy_(a)
            y.copy_(b)
            graph.replay()
            losses.append(loss.item())
    return losses, x
