"""Distributed checkpoints: on other numbers of ranks, and written meanwhile."""

from __future__ import annotations

import pytest

HEAD = """
import torch.nn as nn
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
join("cpu:gloo,npu:hccl")
torch.npu.set_device(0)
def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 4)).npu()
    fully_shard(model, mesh=init_device_mesh("npu", (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for step in range(2):
        model(batch(step, 4, 8, of=0).npu()).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer
def values(model, optimizer):
    model, optimizer = get_state_dict(model, optimizer)
    tensors = dict(model)
    for name, state in optimizer["state"].items():
        tensors |= {f"{name}.{key}": t for key, t in state.items()}
    return {name: getattr(t, "full_tensor", lambda t=t: t)().cpu()
            for name, t in tensors.items()}
def states(model, optimizer):
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
def load(model, optimizer, path):
    loaded = states(model, optimizer)
    dcp.load(loaded, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"],
                   optim_state_dict=loaded["optimizer"])
def same(got, wanted):
    assert got.keys() == wanted.keys() and len(got) == 16
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)
"""


def test_what_two_ranks_saved_is_loaded_by_four_and_by_one(ranks, tmp_path):
    path = str(tmp_path / "saved")
    ranks(
        HEAD
        + f"""
trained = made(0)
dcp.save(states(*trained), checkpoint_id={path!r})
whole = values(*trained)
if rank == 0:
    torch.save(whole, {path + ".whole"!r})
"""
    )

    for size in (4, 1):
        ranks(
            HEAD
            + f"""
other = made(1)
load(*other, {path!r})
same(values(*other), torch.load({path + ".whole"!r}))
""",
            size,
        )


@pytest.mark.parametrize("stager", ["None", "DefaultStager()"])
def test_what_is_saved_meanwhile_is_what_it_was(ranks, stager: str):
    """The model goes on as soon as its state has been copied."""
    ranks(
        HEAD
        + f"""
from concurrent.futures import Future
from torch.distributed.checkpoint.staging import DefaultStager
stager = {stager}
"""
        + """
model, optimizer = trained = made(0)
whole = values(*trained)
path = sys.argv[3] + "async"
saving = dcp.async_save(states(*trained), checkpoint_id=path, async_stager=stager)
if not isinstance(saving, Future):
    saving.staging_completion.result()
    saving = saving.upload_completion
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
assert values(*trained)["0.weight"].eq(0).all()
saving.result()
load(*trained, path)
same(values(*trained), whole)
if stager:
    stager.close()
"""
    )


PINNED_AND_SHARED = """
import sys, torch
import torch.multiprocessing
from torch.distributed._state_dict_utils import _create_cpu_state_dict
x = torch.arange(5000.0, device="npu")
host = _create_cpu_state_dict({"x": x}, pin_memory=True, share_memory=True)["x"]
assert host.is_shared()
host.zero_()
gate = torch.npu.ExternalEvent()
gate.wait(torch.npu.current_stream())
host.copy_(x, non_blocking=True)  # queued, as to any pinned memory
assert not torch.npu.current_stream().query()
gate.record(torch.npu.Stream())
torch.npu.synchronize()
assert host.equal(x.cpu())
host.copy_(x, non_blocking=True)
del host  # the copy is done before the memory goes away
kept = _create_cpu_state_dict({"x": x}, pin_memory=True, share_memory=True)
try:
    torch.cuda._pin_memory_utils.pin_memory(kept["x"].data_ptr(), 100)
except RuntimeError as error:
    print(error)
"""


def test_a_state_dict_is_pinned_and_shared(python) -> None:
    done = python(PINNED_AND_SHARED)

    assert "is pinned already" in done.stdout
    assert "Error" not in done.stderr
