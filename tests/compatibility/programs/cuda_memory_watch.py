"""`npu-dispatch run --cuda` with memory's history and an out-of-memory observer.

The observer is attached as Lightning's and NeMo's snapshots of memory do.
"""

import pathlib
import pickle
import tempfile

import tiny
import torch
from torch import nn

LIBRARY = "torch"
UNCHANGED = "--cuda"


def steps(model, x):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return tiny.train(optimizer, lambda: model(x).square().mean(), 3)


def run(device):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
    x = torch.randn(16, 32).to(device)
    if device == "cpu":
        losses = steps(model, x)
    else:
        seen = []
        file = pathlib.Path(tempfile.mkdtemp()) / "snapshot.pickle"

        def observer(index, asked, total, free):
            seen.append((index, asked))
            torch.cuda.memory._dump_snapshot(str(file))

        torch._C._cuda_attach_out_of_memory_observer(observer)
        torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python")
        torch.cuda.reset_peak_memory_stats()
        losses = steps(model, x)
        stats = torch.cuda.memory_stats()
        assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
        assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() > 0
        asked = 1 << 50
        try:
            torch.empty(asked, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            assert "Tried to allocate" in str(error)
        assert seen[0][0] == 0 and seen[0][1] >= asked
        torch.cuda.memory._record_memory_history(enabled=None)
        written = pickle.loads(file.read_bytes())
        assert written["segments"] and written["device_traces"][0]
    return losses, x
