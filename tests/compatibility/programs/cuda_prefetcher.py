"""`npu-dispatch run --cuda` with batches prefetched on a side stream: 16 steps.

A prefetcher copies and scales the next batch meanwhile, as apex's examples do.
"""

import torch
from torch import nn
from torch.utils import data

LIBRARY = "torch"
UNCHANGED = "--cuda"


class Prefetcher:
    def __init__(self, loader):
        self.batches = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([0.4, 0.5, 0.6], device="cuda").view(1, 3, 1, 1)
        self.std = torch.tensor([0.2, 0.3, 0.4], device="cuda").view(1, 3, 1, 1)
        # The side stream uses what this one has made.
        self.stream.wait_stream(torch.cuda.current_stream())
        self.preload()

    def preload(self):
        self.next = next(self.batches, None)
        if self.next is None:
            return
        with torch.cuda.stream(self.stream):
            images, labels = (t.cuda(non_blocking=True) for t in self.next)
            images = images.float().sub_(self.mean).div_(self.std)
            self.next = images, labels

    def __iter__(self):
        while self.next is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.next
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
            self.preload()
            yield batch


def plain(loader):
    mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
    std = torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)
    for images, labels in loader:
        yield (images.float() - mean) / std, labels


def run(device):
    on_gpu = device == "cuda"
    pictures = data.TensorDataset(torch.rand(32, 3, 8, 8), torch.arange(32) % 5)
    loader = data.DataLoader(pictures, batch_size=4, pin_memory=on_gpu)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    model(torch.zeros(1, 3, 8, 8))
    model = model.cuda() if on_gpu else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(2):
        for images, labels in Prefetcher(loader) if on_gpu else plain(loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    losses = torch.stack(losses)
    return losses.tolist(), losses
