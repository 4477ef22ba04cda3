"""`npu-dispatch run --cuda` with tokens decoded by a graph on its own stream.

The module is chosen by torch.get_device_module(), as SGLang's runner does.
"""

import contextlib

import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"

WORDS, WIDTH, BATCH, STEPS = 48, 24, 3, 12


@contextlib.contextmanager
def frozen_heap():
    import gc

    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, state):
        state = self.cell(self.words(ids), state)
        return self.head(state).argmax(-1), state


@torch.no_grad()
def run(device):
    model = Decoder().to(device)
    ids = torch.arange(BATCH, device=device)
    state = torch.zeros(BATCH, WIDTH, device=device)
    made = torch.zeros(STEPS, BATCH, dtype=torch.long, device=device)
    place = torch.zeros(1, dtype=torch.long, device=device)

    def step():
        nxt, after = model(ids, state)
        made.index_copy_(0, place, nxt[None])
        ids.copy_(nxt)
        state.copy_(after)
        place.add_(1)

    replay = step
    if device == "cuda":
        module = torch.get_device_module(device)
        stream, pool = module.Stream(), module.graph_pool_handle()
        kept = [t.clone() for t in (ids, state, made, place)]
        with frozen_heap():
            stream.wait_stream(module.current_stream())
            with module.stream(stream):
                step()  # warms up
            module.current_stream().wait_stream(stream)
            for now, before in zip((ids, state, made, place), kept, strict=True):
                now.copy_(before)
            module.synchronize()
            graph = module.CUDAGraph()
            with module.graph(graph, pool=pool, stream=stream):
                step()
        replay = graph.replay
    for _ in range(STEPS):
        replay()
    figures = [*made.flatten().tolist(), state.abs().sum().item()]
    return figures, state
