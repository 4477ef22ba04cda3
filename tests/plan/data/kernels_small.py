"""Write kernels-small.json, the trace of test_kernels.py.

    python tests/plan/data/kernels_small.py

It records two training steps of a small MLP on this machine's device npu, with
torch.profiler and the shapes of its operators. Of the trace it keeps what tells kernel
times: operators, launches and kernels. The names of this machine and of its files
are left out. Times are this machine's; the test takes them from the file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import npu_dispatch

_KEPT = {"cpu_op", "kernel", "privateuse1_runtime"}
_ARGUMENTS = ("External id", "correlation", "Input Dims", "Input type")


def record(path: Path) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).to("npu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 64, device="npu")
    y = torch.zeros(32, dtype=torch.long, device="npu")

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()  # makes the gradients and fills caches
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities, record_shapes=True) as profiler:
        step()
        step()
        npu_dispatch.npu.synchronize()
    profiler.export_chrome_trace(str(path))


def kept(event: dict[str, object]) -> dict[str, object]:
    args = event["args"]
    assert isinstance(args, dict)
    told = {key: args[key] for key in _ARGUMENTS if key in args}
    return {**event, "args": told}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "trace.json"
        record(whole)
        events = json.loads(whole.read_text())["traceEvents"]
    lines = [json.dumps(kept(e)) for e in events if e.get("cat") in _KEPT]
    text = '{"traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
    Path(__file__).with_name("kernels-small.json").write_text(text)


if __name__ == "__main__":
    main()
