"""The history of who allocated and freed, as torch's visualiser reads it."""

import pickle
from typing import Any

import pytest
import torch

MIB = 1 << 20


@pytest.fixture
def history():
    torch.npu.memory._record_memory_history(clear_history=True)
    yield
    torch.npu.memory._record_memory_history(None, clear_history=True)


def actions(address: int) -> list[str]:
    """Return what became of the memory there."""
    steps = torch.npu.memory._snapshot()["device_traces"][0]
    mine = [step["action"] for step in steps if step.get("addr") == address]
    return [action for action in mine if not action.startswith("segment")]


def blocks(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for segment in snapshot["segments"] for b in segment["blocks"]]


def test_history_tells_who_allocated_and_freed(history):
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    address = x.data_ptr()
    found = blocks(torch.npu.memory._snapshot())
    [block] = [block for block in found if block["address"] == address]
    assert block["state"] == "active_allocated"
    assert any("test_history_tells" in frame["name"] for frame in block["frames"])

    del x
    assert actions(address) == ["alloc", "free_requested", "free_completed"]
    steps = torch.npu.memory._snapshot()["device_traces"][0]
    assert all(step["frames"] for step in steps if step["action"] == "alloc")


def test_each_step_has_its_address_and_size(history):
    torch.npu.empty_cache()
    torch.npu.memory._record_memory_history(clear_history=True)
    size, huge = 30 * MIB, 1 << 48
    x = torch.empty(size - 5, dtype=torch.uint8, device="npu")
    address = x.data_ptr()
    del x
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(huge, dtype=torch.uint8, device="npu")
    torch.npu.empty_cache()

    steps = torch.npu.memory._snapshot()["device_traces"][0]
    mine = [(s["action"], s["size"]) for s in steps if s.get("addr") == address]
    actions = ("segment_alloc", "alloc", "free_requested", "free_completed")
    assert mine == [(action, size) for action in (*actions, "segment_free")]
    [oom] = [s for s in steps if s["action"] == "oom"]
    free = torch.npu.get_device_properties(0).total_memory - torch.npu.memory_reserved()
    assert (oom["size"], oom["device_free"]) == (huge, free)


def test_history_shows_a_free_that_another_stream_delays(history):
    gate, side = torch.npu.ExternalEvent(), torch.npu.Stream()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    address = x.data_ptr()
    gate.wait(side)
    x.record_stream(side)
    del x

    assert actions(address)[-1] == "free_requested"
    gate.record()
    side.synchronize()
    torch.npu.memory_stats()  # looks at what was pending
    assert actions(address)[-1] == "free_completed"


def test_a_dump_is_what_the_visualiser_reads(history, tmp_path):
    from torch.cuda import _memory_viz

    kept = [torch.empty(n * MIB, device="npu") for n in (1, 2)]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 48, device="npu")
    file = tmp_path / "snapshot.pickle"

    torch.npu.memory._dump_snapshot(file)
    snapshot = pickle.loads(file.read_bytes())

    assert "oom" in [step["action"] for step in snapshot["device_traces"][0]]
    assert "add_local_files" in _memory_viz.trace_plot(snapshot)
    assert "add_local_files" in _memory_viz.segment_plot(snapshot)
    assert "segments" in _memory_viz.segsum(snapshot)
    assert "seg_0" in _memory_viz.trace(snapshot)
    assert _memory_viz.memory(snapshot, format_flamegraph=str)
    del kept


def test_nothing_is_recorded_when_off():
    torch.npu.memory._record_memory_history(None, clear_history=True)
    x = torch.empty(5, device="npu")

    assert torch.npu.memory._snapshot()["device_traces"][0] == []
    assert x.numel() == 5
    with pytest.raises(RuntimeError, match="enabled"):
        torch.npu.memory._record_memory_history("sometimes")


def test_history_keeps_the_latest(history):
    torch.npu.memory._record_memory_history(max_entries=4)
    for _ in range(10):
        torch.empty(5, device="npu")

    assert len(torch.npu.memory._snapshot()["device_traces"][0]) == 4


def test_frames_of_generated_code_name_their_node(history, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat(3 * MIB)

    def nodes(snapshot) -> set[str]:
        frames = [f for b in blocks(snapshot) for f in b.get("frames", ())]
        return {f["fx_node_name"] for f in frames if "fx_node_name" in f}

    from torch.fx import experimental

    with experimental._config.patch(enrich_profiler_metadata=True):
        model = torch.fx.symbolic_trace(Model())
    y = model(torch.ones(1, dtype=torch.uint8, device="npu"))

    assert nodes(torch.npu.memory._snapshot()) == set()
    assert nodes(torch.npu.memory._snapshot(augment_with_fx_traces=True)) == {"repeat"}
    file = tmp_path / "snapshot.pickle"
    torch.npu.memory._dump_snapshot(file, augment_with_fx_traces=True)
    assert nodes(pickle.loads(file.read_bytes())) == {"repeat"}
    assert y.numel() == 3 * MIB


def test_history_leaves_out_what_is_to_be_skipped(history):
    torch.npu.memory._record_memory_history(
        clear_history=True, skip_actions=["free_requested", "snapshot"]
    )
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    address = x.data_ptr()
    del x
    assert actions(address) == ["alloc", "free_completed"]
    with pytest.raises(RuntimeError, match="skip_actions"):
        torch.npu.memory._record_memory_history(skip_actions=["frees"])


def test_the_context_state_keeps_the_stacks_of_memory_in_use_only(history):
    torch.npu.memory._record_memory_history(context="state", clear_history=True)
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    freed = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    del freed
    snapshot = torch.npu.memory._snapshot()

    named = [
        block["address"]
        for block in blocks(snapshot)
        if any("test_the_context_state" in f["name"] for f in block["frames"])
    ]
    assert named == [x.data_ptr()]
    steps = snapshot["device_traces"][0]
    assert [step["action"] for step in steps if step["action"] == "alloc"]
    assert not any(step["frames"] for step in steps)
