"""Libraries that know npu: accelerate, DeepSpeed, Lightning. More: compatibility/."""

from __future__ import annotations

import pytest
from interpreter import environment

from npu_dispatch.integrations.lightning import _indices

PROGRAM = """
import torch
from accelerate import Accelerator
from accelerate.utils import is_npu_available, set_seed
assert is_npu_available()
set_seed(3)
accelerator = Accelerator(mixed_precision="bf16")
assert accelerator.device.type == "npu"
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 2))
loader = torch.utils.data.DataLoader(data, batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for _ in range(5):
    for x, y in loader:
        assert x.device.type == "npu"
        loss = (model(x).float() - y).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
accelerator.save_state("state")
accelerator.load_state("state")
print(losses[-1] < losses[0])
"""


def test_training_with_accelerate(python):
    result = python(PROGRAM, NPU_DISPATCH_TORCH_NPU_ALIAS="1")

    assert result.stdout.splitlines()[-1] == "True"


def test_its_report_of_the_environment(python):
    command = ("-m", "accelerate.commands.accelerate_cli", "env")
    result = python.run(*command, env=environment(NPU_DISPATCH_TORCH_NPU_ALIAS="1"))

    assert result.returncode == 0, result.stderr
    assert "PyTorch accelerator: NPU" in result.stdout


SAME_LOSSES = """
import sys, torch
from accelerate import Accelerator
from torch import nn
torch.manual_seed(0)
accelerator = Accelerator(cpu=sys.argv[1] == "cpu", gradient_accumulation_steps=2)
embedding, head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
head.weight = embedding.weight  # a language model's
model = nn.Sequential(embedding, nn.Tanh(), head)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-1)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)
tokens = torch.arange(30) % 11
data = [(tokens[i : i + 4], tokens[i + 1 : i + 5]) for i in range(24)]
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader, schedule = accelerator.prepare(
    model, optimizer, loader, schedule
)
assert accelerator.device.type == sys.argv[1]
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(); schedule.step(); optimizer.zero_grad()
    print(f"{loss.item():.4f}")
"""


@pytest.mark.parametrize("by", ["NPU_DISPATCH_TORCH_NPU_ALIAS", "NPU_DISPATCH_CUDA"])
def test_an_optimizer_made_before_prepare_gives_the_losses_of_cpu(python, by):
    cpu, npu = (
        [*map(float, python(SAME_LOSSES, device, **{by: "1"}).stdout.split())]
        for device in ("cpu", "npu")
    )

    assert npu == pytest.approx(cpu, abs=2e-4)
    assert npu[-1] < npu[0] - 0.1


# Each call of deepspeed/accelerator/npu_accelerator.py, as it makes it.
CALLS = """
import ctypes, os, sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.npu
assert sys.modules["torch.npu"] is torch.npu
npu = torch.npu
ran = []
npu._lazy_call(lambda: ran.append(1))
assert npu.is_available() and npu.device_count() == 2 and not ran
assert os.environ["ASCEND_RT_VISIBLE_DEVICES"] == "0,2"  # of three devices
npu.set_device(1)
assert npu.current_device() == 1 and ran == [1]
npu.set_device(0)
npu.synchronize(None); npu.synchronize(1)
npu.manual_seed(3); npu.manual_seed_all(5)
assert npu.initial_seed() == npu.default_generators[1].initial_seed() == 5
for where in ((), (1,)):
    state = npu.get_rng_state(*where)
    first = torch.rand(3, device=f"npu:{(*where, 0)[0]}")
    npu.set_rng_state(state, *where)
    assert torch.rand(3, device=first.device).equal(first)
del first
assert npu.current_stream(None) == npu.default_stream(None)
stream, event = npu.Stream(), npu.Event(enable_timing=True)
with npu.stream(stream):
    assert npu.current_stream(0) == stream
    x = torch.ones(1 << 20, device="npu")
    event.record(stream)
event.synchronize()
assert event.query() and str(x.device).startswith("npu:")
assert npu.memory_allocated(None) == npu.memory_allocated(0) == x.nbytes
assert npu.memory_allocated(1) == 0
del x
npu.reset_max_memory_allocated(0); npu.reset_max_memory_cached(0)
assert npu.max_memory_allocated(0) == 0
npu.reset_peak_memory_stats(0)
assert npu.memory_cached(0) == npu.memory_reserved(0) == npu.max_memory_cached(0)
assert npu.max_memory_reserved(0) == npu.memory_reserved(0) > 0
assert npu.memory_stats(0)["reserved_bytes.all.current"] == npu.memory_reserved(0)
npu.empty_cache()
assert npu.memory_reserved(0) == 0
assert npu.get_device_properties(None).total_memory == npu.mem_get_info()[1]
assert npu.get_device_properties(1).total_memory > 0
host = (ctypes.c_char * (4 << 12))()
start = (ctypes.addressof(host) + 4095) // 4096 * 4096
assert npu.npurt().npuHostRegister(start, 4096, 2) == 0
assert npu.npurt().npuHostUnregister(start) == 0
graph, y = npu.NPUGraph(), torch.ones(4, device="npu")
npu.synchronize()
with npu.graph(graph, None, None):
    z = y + 1
y.fill_(8)
graph.replay()
assert z.tolist() == [9] * 4
assert npu.is_bf16_supported() is True
"""


def test_each_call_that_deepspeeds_accelerator_makes(python):
    env = {"NPU_DISPATCH_DEVICES": "3", "ASCEND_RT_VISIBLE_DEVICES": "0,2"}

    python(CALLS, **env)


@pytest.mark.parametrize(
    ("asked", "indices"),
    [(1, [0]), (2, [0, 1]), (-1, [0, 1]), ("2", [0, 1]), ("1,", [1]), ([1], [1])],
)
def test_devices_are_counted_or_listed_as_for_cuda(asked, indices, monkeypatch):
    monkeypatch.setattr("torch.npu.device_count", lambda: 2)

    assert _indices(asked) == indices


@pytest.mark.parametrize("asked", [0, 3, [2], [0, 0], [], "0,5", "", ","])
def test_devices_that_there_are_not_are_refused(asked, monkeypatch):
    monkeypatch.setattr("torch.npu.device_count", lambda: 2)

    with pytest.raises(ValueError, match="there are 2 npu devices, 0 to 1"):
        _indices(asked)
