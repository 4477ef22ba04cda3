"""`npu-dispatch run --cuda` with a server's graphs: one per batch size, one pool.

Requests are padded to the next captured size, as vLLM's runner does.
"""

import gc

import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"

SIZES, WIDTH = (8, 4, 2, 1), 32


class Runner:
    def __init__(self, model):
        self.model, self.graphs, self.pool = model, {}, None
        self.inputs = torch.zeros(SIZES[0], WIDTH, device="cuda")
        self.outputs = torch.zeros(SIZES[0], WIDTH, device="cuda")

    def capture(self):
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for size in SIZES:
                for _ in range(2):
                    self.outputs[:size].copy_(self.model(self.inputs[:size]))
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(cuda_graph=graph, pool=self.pool, stream=stream):
                    self.outputs[:size].copy_(self.model(self.inputs[:size]))
                if self.pool is None:
                    self.pool = graph.pool()
                self.graphs[size] = graph
        torch.cuda.current_stream().wait_stream(stream)
        assert before - torch.cuda.mem_get_info()[0] < 1 << 30

    def __call__(self, x):
        size = min(s for s in SIZES if s >= len(x))
        self.inputs[: len(x)].copy_(x, non_blocking=True)
        self.inputs[len(x) : size].zero_()
        self.graphs[size].replay()
        return self.outputs[: len(x)].clone()


@torch.inference_mode()
def run(device):
    model = nn.Sequential(
        nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH), nn.LayerNorm(WIDTH)
    )
    requests = [torch.randn(n, WIDTH) for n in (3, 8, 1, 5, 2, 7)]
    model, run = model.to(device).eval(), model
    if device == "cuda":
        run = Runner(model)
        run.capture()
    answers = [run(x.to(device)) for x in requests]
    return [a.square().sum().item() for a in answers], answers[0]
